"""From nothing to a policy that learns from its own groups of trajectories: its own network, its own tokens, real
pixels."""

import json
from pathlib import Path

import pytest

from flows.flywheel import flywheel
from schemas.config import Config, config_of
from storage.lake import Lake
from tasks.shared.policies import policy_row
from tasks.shared.status import iterations
from tests.flows.conftest import prefect_server  # noqa: F401  (pytest finds the fixture by its name)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return config_of(
        {
            "name": "groups",
            "lake": {"uri": str(tmp_path / "lake"), "min_free_mb": 10},
            "environments": {"fake": {"sandboxes": 8}},
            "suite": {"tasks": ["click-target"]},
            "collect": {"trajectories_per_task": 160},
            "policy": {"hidden": 96, "layers": 2, "vision_hidden": 64, "vision_layers": 2, "max_new_tokens": 16},
            "train": {
                "steps_first": 110,
                "processes": 1,
                "warmup": 5,
                "group": {"groups": 8, "size": 6, "k": 3, "batch": 24, "highest": 0.95},
            },
            "evaluate": {"seeds": 20, "held_out_seeds": 0, "explorer_seeds": 1, "untrained_seeds": 1},
        }
    )


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_policy_taught_by_the_explorer_goes_on_learning_from_groups_of_its_own(config: Config) -> None:
    flywheel(config, iterations=1)
    grouped = config.train.model_copy(update={"method": "grpo"})
    flywheel(config.model_copy(update={"train": grouped}), iterations=1)
    lake = Lake.open(config.lake)
    metrics = json.loads(policy_row(lake, "policy-0001").metrics)
    assert metrics["groups"] == 8 and metrics["informative"] >= 1 and metrics["samples"] >= 6
    assert 0 <= metrics["mismatch"] < 0.02
    assert metrics["moved"] > 0 and metrics["tokens"] >= metrics["samples"]
    first, second = iterations(lake)[1:]
    assert second.policy == "policy-0001" and second.success is not None
    assert second.verified.n == 48 and first.verified is None
    drawn = lake.read("steps", ["token_ids", "logprobs"], {"iteration": 1}).to_pylist()
    assert all(row["token_ids"] and len(row["token_ids"]) == len(row["logprobs"]) for row in drawn)
