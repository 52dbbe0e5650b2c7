"""Folding in the wheel: a policy acts on folded prompts, and is trained on what it read."""

import json
from pathlib import Path

import pytest

from flows.flywheel import flywheel
from models.random_vlm import build_random
from schemas.config import Config, config_of
from schemas.config.training import TrainConfig
from storage.lake import Lake
from tasks.shared.policies import policy_row
from tests.tiers import NIGHTLY

FOLD = {"context": "fold", "live_images": 2, "fold_images": 1, "history_images": 1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiny", *(["qwen3_vl"] if NIGHTLY else [])])
def test_an_iteration_with_folding_trains_a_policy_that_acts(kind: str, small: Config, tmp_path: Path) -> None:
    fields = small.model_dump()
    fields["policy"] |= FOLD
    fields["suite"]["tasks"] = ("click-target", "three-steps")
    if kind != "tiny":
        build_random(kind, ["Click on the target."] * 8, 0, tmp_path / "base")
        fields["policy"] |= {"base": str(tmp_path / "base"), "max_new_tokens": 3}
        steps = TrainConfig().steps_first
        fields["train"] |= {"steps": 2, "batch": 4, "warmup": 1, "learning_rate": 1e-3, "steps_first": steps}
    config = config_of(fields)
    flywheel(config, iterations=2)
    lake = Lake.open(config.lake)
    row = policy_row(lake, "policy-0001")
    assert row.method == "sft" and json.loads(row.metrics)["loss"] > 0
    played = lake.read("trajectories", ["policy", "sampling", "iteration"]).to_pylist()
    asked = [json.loads(one["sampling"])["asked"] for one in played if one["policy"] == "policy"]
    assert asked and all(one["context"] == "fold" and one["live_images"] == 2 for one in asked)
