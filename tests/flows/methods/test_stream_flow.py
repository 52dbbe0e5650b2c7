"""Iterations with `train.stream.on` on the fake sandbox: what the stages say and leave behind."""

import json
from typing import Any

import pytest

from flows.flywheel import flywheel
from models.tiny.layout import CRITIC
from schemas.config import Config, config_of
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.policies import policy_row
from tasks.shared.weights import checkpoint_folder
from tests.clicker import clicked
from tests.flows.methods.test_group_flow import begun, grouped, result

__all__ = ["begun"]


def streamed(config: Config, tasks: tuple[str, ...] = ("click-target",), stale: int = 4, **group: Any) -> Config:
    fields = grouped(config, tasks, **group).model_dump()
    fields["train"]["stream"] = {"on": True, "groups": 2, "stale": stale}
    return config_of(fields)


@pytest.mark.slow
def test_groups_are_trained_on_while_others_are_rolled_out_and_every_step_names_its_weights(
    small: Config, begun: Lake
) -> None:
    flywheel(clicked(streamed(small, groups=12, stale=1), 0.3), iterations=1)
    trajectories = begun.read("trajectories", where={"iteration": 1}).to_pylist()
    steps = begun.read("steps", where={"iteration": 1}).to_pylist()
    assert len(trajectories) == 48 and {row["policy_version"] for row in trajectories} == {"policy-0000"}
    row = policy_row(begun, "policy-0001")
    metrics = json.loads(row.metrics)
    assert (row.method, row.parent) == ("grpo", "policy-0000")
    assert metrics["updates"] >= 2 and metrics["groups"] == 12 and metrics["samples"] > 0
    chosen_by = {step["policy_version"] for step in steps}
    assert "policy-0000" in chosen_by and chosen_by - {"policy-0000"}
    assert chosen_by <= {"policy-0000", *(f"policy-0001+{updates}" for updates in range(1, metrics["updates"] + 1))}
    assert metrics["age_max"] <= 1 and 0 < metrics["sandbox_idle"] < 1 and 0 < metrics["trainer_idle"] < 1
    assert metrics["mismatch"] > 0 and "mismatch_fresh" in metrics
    said = result(begun, "train")["say"]
    assert "age mean" in said and "sandboxes idle" in said and "left out" in said
    weights = [(checkpoint_folder(begun, v) / "model.safetensors").read_bytes() for v in ("policy-0000", "policy-0001")]
    assert weights[0] != weights[1]
    assert begun.count("evaluations", {"policy_version": "policy-0001", "suite": "suite"}) == 3


@pytest.mark.nightly
def test_a_critic_judges_what_is_trained_on_while_others_go_on(small: Config, begun: Lake) -> None:
    fields = streamed(small, groups=8, stale=1).model_dump()
    fields["train"] |= {"method": "ppo", "ppo": {**fields["train"]["ppo"], "value_steps": 3, "batch": 4}}
    flywheel(clicked(config_of(fields), 0.4), iterations=1)
    row = policy_row(begun, "policy-0001")
    metrics = json.loads(row.metrics)
    assert (row.method, row.parent) == ("ppo", "policy-0000")
    assert metrics["updates"] >= 2 and metrics["age_max"] <= 1 and 0 < metrics["value_steps"] <= 3
    assert {"explained_variance", "policy_lambda", "mismatch_fresh", "sandbox_idle"} <= metrics.keys()
    assert (checkpoint_folder(begun, "policy-0001") / CRITIC).exists()


def test_streaming_is_for_methods_that_play_their_own_rewards(small: Config) -> None:
    fields = small.model_dump()
    fields["train"] |= {"stream": {"on": True}}
    with pytest.raises(UsageError, match=r"stream\.on needs a method that streams.*not sft"):
        config_of(fields)
