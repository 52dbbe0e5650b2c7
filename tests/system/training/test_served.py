"""A policy that acts on a server with vLLM's or SGLang's endpoints: after every update it acts with the new weights.

The server is ours (`tests.system.parts.model_server`) and has a real small policy behind it.
"""

import json
import shutil
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flows.flywheel import flywheel
from schemas.config import Config, config_of
from schemas.failure import FlywheelError
from storage.lake import Lake
from tasks.shared.policies import policies
from tests.flows.conftest import all_forked, prefect_server  # noqa: F401  (pytest finds fixtures by their names)

pytestmark = pytest.mark.slow


UPDATES = {"vllm": "/collective_rpc", "sglang": "/update_weights_from_disk"}
"""What brings weights."""
EACH = [(stream, kind) for stream in (False, True) for kind in ("vllm", "sglang")]


def config_in(folder: Path, **train: Any) -> Config:
    return config_of(
        {
            "name": "served",
            "lake": {"uri": str(folder / "lake"), "min_free_mb": 10},
            "environments": {"fake": {"sandboxes": 6}},
            "suite": {"tasks": ["click-target"]},
            "collect": {"trajectories_per_task": 160},
            "policy": {"hidden": 96, "layers": 2, "vision_hidden": 64, "vision_layers": 2, "max_new_tokens": 16},
            "train": {
                "steps_first": 110,
                "processes": 1,
                "warmup": 5,
                "group": {"groups": 6, "size": 4, "k": 3, "batch": 24, "highest": 0.95, "most_mismatch": 0.02},
                **train,
            },
            "evaluate": {"seeds": 6, "held_out_seeds": 0, "explorer_seeds": 1, "untrained_seeds": 1},
            "promote": {"tolerance": 0.9},
        }
    )


def served(config: Config, kind: str, log: Path, *more: str, **server: Any) -> Config:
    """The config with a server that the flywheel starts."""
    command = f"{sys.executable} -m tests.system.parts.model_server {kind} {{checkpoint}} {{port}} {log}"
    given = {"command": " ".join([command, *more]), "update": kind, "logprobs": True, "concurrency": 6, **server}
    fields = config.model_dump()
    fields["policy"]["server"] = given
    return config_of(fields)


def with_method(config: Config, stream: bool) -> Config:
    fields = config.model_dump()
    fields["train"] |= {"method": "grpo", **({"stream": {"on": True, "groups": 1, "stale": 1}} if stream else {})}
    return config_of(fields)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A lake whose champion has learned from the explorer to hit its button now and then."""
    request.getfixturevalue("prefect_server")
    folder = tmp_path_factory.mktemp("taught")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FLYWHEEL_HOME", str(folder / "home"))
        flywheel(config_in(folder), iterations=1)
    return folder


@pytest.fixture
def folder(taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    shutil.copytree(taught / "lake", tmp_path / "lake")
    return tmp_path


def calls(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.nightly  # test_adapters_served.py always updates a server
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("stream", "kind"), EACH, ids=str)
def test_two_iterations_turn_by_themselves_and_every_step_is_by_the_weights_that_it_names(
    folder: Path, kind: str, stream: bool
) -> None:
    log = folder / "calls"
    config = served(with_method(config_in(folder), stream), kind, log, "0.03")
    flywheel(config, iterations=2)
    lake = Lake.open(config.lake)
    made = {name: json.loads(row.metrics) for name, row in policies(lake).items() if row.iteration in (1, 2)}
    assert made and all(0 <= metrics["mismatch_most"] < 0.02 for metrics in made.values())
    rows = lake.read("trajectories", ["failure_boundary", "iteration"]).to_pylist()
    assert Counter(row["failure_boundary"] for row in rows if row["iteration"])["server"] == 0
    steps = lake.read("steps", where={"iteration": [1, 2]}).to_pylist()
    assert all(step["token_ids"] and len(step["token_ids"]) == len(step["logprobs"]) for step in steps)
    chats = [one for one in calls(log) if one["path"] == "chat"]
    assert {one["ended"] for one in chats} == {"stop"}
    by = {name.rpartition("-")[0] for name in {one["by"] for one in chats} - {"default"}}
    assert {step["policy_version"] for step in steps} <= by
    assert set(made) <= by
    updates = [one["by"] for one, after in pairwise(chats) if one["by"] != after["by"]]
    assert any(one["path"] == UPDATES[kind] for one in calls(log)) and updates
    if stream:  # weights changed while trajectories were under way, which went on under the new ones
        trajectories: dict[str, set[str]] = {}
        for step in steps:
            trajectories.setdefault(step["trajectory_id"], set()).add(step["policy_version"])
        assert any("+" in version for version in set().union(*trajectories.values()))
    for chat in chats:
        assert chat["sampling"]["top_k"] == -1 and chat["sampling"]["repetition_penalty"] == 1.0


@pytest.mark.timeout(300)
def test_raw_log_probabilities_are_refused_before_anything_is_rolled_out(folder: Path) -> None:
    config = served(with_method(config_in(folder), False), "vllm", folder / "calls", "raw")
    before = Lake.open(config.lake).read("trajectories", ["iteration"]).num_rows
    with pytest.raises(FlywheelError, match="--logprobs-mode processed_logprobs"):
        flywheel(config, iterations=1)
    assert Lake.open(config.lake).read("trajectories", ["iteration"]).num_rows == before
