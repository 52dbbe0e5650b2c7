"""An iteration on rewards with a model of a real architecture: rolled out, trained on every rank's path, measured."""

import json
from pathlib import Path

import pytest

from flows.flywheel import flywheel
from models.random_vlm import build_random
from models.tiny.layout import CRITIC
from schemas.config import Config, config_of
from schemas.config.training import TrainConfig
from storage.lake import Lake
from tasks.shared.policies import champion, policy_row
from tasks.shared.weights import checkpoint_folder
from tests.clicker import clicked
from tests.flows.methods.test_group_flow import sometimes

METHODS = ("ppo", "grpo", "dpo", "grpo stream")


@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS)
def test_a_model_of_a_real_architecture_goes_on_from_rewards(
    small: Config,
    tmp_path: Path,
    method: str,
) -> None:
    build_random("qwen2_5_vl", ["Click on the target."] * 8, 0, tmp_path / "base")
    fields = small.model_dump()
    fields["policy"]["base"] = str(tmp_path / "base")
    fields["suite"]["tasks"] = ("click-target",)
    fields["train"] |= {"steps": 1, "batch": 2, "steps_first": TrainConfig().steps_first}
    config = config_of(fields)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    sometimes(lake, "fake/click-target", champion(lake).policy_version)
    method, _, streams = method.partition(" ")
    fields["train"] |= {"method": method, "group": {"groups": 3, "size": 4, "k": 2, "batch": 4}}
    fields["train"]["stream"] |= {"on": True, "groups": 1} if streams else {}
    fields["train"]["ppo"] |= {"value_steps": 3, "batch": 4}
    flywheel(clicked(config_of(fields), 0.5), iterations=1)
    row = policy_row(lake, "policy-0001")
    assert (row.method, row.parent) == (method, "policy-0000")
    metrics = json.loads(row.metrics)
    assert metrics["samples"] > 0 and metrics.get("updates", 0) >= 2 * bool(streams)
    before, after = (checkpoint_folder(lake, version) for version in ("policy-0000", "policy-0001"))
    assert (before / "model.safetensors").read_bytes() != (after / "model.safetensors").read_bytes()
    assert (after / CRITIC).exists() == (method == "ppo")
