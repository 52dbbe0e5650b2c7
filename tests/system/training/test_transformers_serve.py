"""A random tiny Qwen3.5 that acts behind `transformers serve`, which returns no log probabilities, and learns in
groups."""

import json
import sys
from pathlib import Path

import pytest

from flows.flywheel import flywheel
from models.random_vlm import Kind
from schemas.config import Config, config_of
from storage.lake import Lake
from tasks.shared.policies import champion, policy_row
from tests.flows.conftest import all_forked, prefect_server, small  # noqa: F401  (pytest finds fixtures by their names)
from tests.flows.methods.test_group_flow import sometimes
from tests.tiny_qwen import POLICY, build_tiny_qwen, imitate, improve, in_groups, learning, on_test_seeds, success

WHOLE = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "content": {
            "close_pattern": r"<\|(?:im_end|endoftext)\|>",
            "content": "text",
            "content_args": {"strip": False},
        }
    },
}
"""The template with which this server returns whole replies (docs/served-replies.md)."""
CASES: tuple[tuple[Kind, bool, int, float], ...] = (
    ("qwen3_5", False, 11, 0.5),
    ("qwen3_5", True, 34, 0.7),
    ("qwen3_5_moe", True, 41, 0.7),
)
"""The kind, whether a reply points before it clicks, the seed of a base and its runs, and the temperature of groups. Of
24 groups of pointing policies of two other seeds, 13 to 20 had two outcomes at 0.3 to 0.7, and 1 and 21 at 1."""


def whole_base(folder: Path, seed: int = 0, pointing: bool = False, kind: Kind = "qwen3_5") -> Path:
    """Writes a random checkpoint whose replies this server returns whole."""
    build_tiny_qwen(kind, folder, seed, pointing)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"response_template": WHOLE}))
    return folder


def served(config: Config) -> Config:
    """The config with this server, which takes one request at a time."""
    fields = config.model_dump()
    del fields["policy"]["batch"]
    command = f"{sys.executable} -m tests.system.parts.transformers_serve serve --port {{port}} --device cpu"
    fields["policy"]["server"] = {"command": command, "concurrency": 2}
    return config_of(fields)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_groups_behind_transformers_serve_are_trained_on_as_text(small: Config, tmp_path: Path) -> None:  # noqa: F811
    fields = learning(small, whole_base(tmp_path / "base"), steps=4).model_dump()
    fields["collect"]["trajectories_per_task"] = 8
    fields["evaluate"]["seeds"] = 2
    config = served(config_of(fields))
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    sometimes(lake, "fake/moving", champion(lake).policy_version)
    groups = {"groups": 3, "size": 2, "k": 1, "inject": True, "recompute": True}
    flywheel(in_groups(config, **groups), iterations=1)
    steps = lake.read("steps", where={"iteration": 1}).to_pylist()
    assert steps and all(one["token_ids"] is None and one["logprobs"] is None for one in steps)
    assert any(one["raw_text"] for one in steps)
    metrics = json.loads(policy_row(lake, "policy-0001").metrics)
    assert metrics["informative"] >= 1 and metrics["tokens"] > 0 and metrics["mismatch"] == 0


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "pointing", "seed", "temperature"), CASES)
def test_a_policy_behind_transformers_serve_gets_better_in_groups_on_folded_prompts(
    kind: Kind,
    pointing: bool,
    seed: int,
    temperature: float,
    small: Config,  # noqa: F811
    tmp_path: Path,
) -> None:
    fields = learning(small, whole_base(tmp_path / "base", seed, pointing, kind), pointing=pointing).model_dump()
    config = config_of(fields | {"seed": seed})
    imitated = imitate(config)  # in this process, without the server
    trained = improve(served(in_groups(config, recompute=True, temperature=temperature)))
    lake = Lake.open(config.lake)
    assert trained and success(lake) >= max(0.8, imitated)
    for row in trained:
        metrics = json.loads(row.metrics)
        assert metrics["informative"] >= 1 and metrics["moved"] > 0
        steps = lake.read("steps", ["step", "token_ids", "actions"], {"iteration": row.iteration}).to_pylist()
        assert all(one["token_ids"] is None for one in steps)  # the server's
        assert max(one["step"] for one in steps) >= POLICY["live_images"]  # behind a fold
        assert max(len(one["actions"]) for one in steps) == (2 if pointing else 1)
    assert on_test_seeds(config) >= 0.7
