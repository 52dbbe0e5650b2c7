"""Random tiny Qwen3.5 models on a CPU: from the explorer's successes, then in groups, on folded prompts."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.flywheel import flywheel
from schemas.config import Config, config_of
from storage.lake import Lake
from tasks.shared.policies import champion, policy_row
from tests.flows.methods.test_group_flow import sometimes
from tests.tiny_qwen import (
    AGREES,
    POLICY,
    build_tiny_qwen,
    imitate,
    improve,
    in_groups,
    learning,
    on_test_seeds,
    success,
)

KINDS = ("qwen3_5", "qwen3_5_moe")
CASES = {
    "one action a reply": ("qwen3_5", False, 11, 0.5),
    "several actions a reply": ("qwen3_5", True, 21, 0.5),
    "a mixture of experts": ("qwen3_5_moe", False, 5, 0.3),
    "several actions a reply of a mixture of experts": ("qwen3_5_moe", True, 25, 0.3),
}
"""Kind of the model, whether a reply points before it clicks, the seed of a base and its runs (the settings were chosen
with others), and the temperature of the trajectories in groups. After imitation, samples at 1 hit a button hardly more
often than by chance, although greedy replies are right."""


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES)
def test_a_random_model_learns_from_the_explorer_and_then_in_groups_of_its_own(
    case: str, small: Config, tmp_path: Path
) -> None:
    kind, pointing, seed, temperature = CASES[case]
    build_tiny_qwen(kind, tmp_path / "base", seed, pointing)
    config = config_of(learning(small, tmp_path / "base", pointing=pointing).model_dump() | {"seed": seed})
    imitated = imitate(config)
    trained = improve(in_groups(config, temperature=temperature))
    lake = Lake.open(config.lake)
    assert trained and success(lake) >= max(0.8, imitated)
    acted = lake.read("steps", ["step", "actions"], {"iteration": trained[0].iteration}).to_pylist()
    assert max(one["step"] for one in acted) >= POLICY["live_images"]  # behind a fold
    assert max(len(one["actions"]) for one in acted) == (2 if pointing else 1)
    for row in trained:
        metrics = json.loads(row.metrics)
        assert metrics["informative"] >= 1 and metrics["moved"] > 0 and 0 < metrics["mismatch_most"] < AGREES
    assert on_test_seeds(config) >= 0.7


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_actor_and_trainer_of_gated_deltanets_agree(kind: Any, small: Config, tmp_path: Path) -> None:
    build_tiny_qwen(kind, tmp_path / "base")
    fields = learning(small, tmp_path / "base", steps=2).model_dump()
    fields["collect"]["trajectories_per_task"] = 8
    fields["evaluate"]["seeds"] = 2
    config = config_of(fields)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    sometimes(lake, "fake/moving", champion(lake).policy_version)
    flywheel(in_groups(config, groups=3, size=2, k=1, inject=True), iterations=1)
    steps = lake.read("steps", ["token_ids"], {"iteration": 1}).to_pylist()
    assert steps and all(one["token_ids"] for one in steps)
    metrics = json.loads(policy_row(lake, "policy-0001").metrics)
    assert metrics["informative"] >= 1 and 0 < metrics["mismatch_most"] < AGREES
