"""An iteration of `train.method=ppo` on the fake sandbox: trajectories of groups, a critic beside the weights,
retraining."""

import json
from typing import Any

import pytest

from apps.commands.lineage import lineage_of
from flows.flywheel import flywheel
from flows.policies import retrain
from models.tiny.layout import CRITIC
from schemas.config import Config, config_of
from storage.lake import Lake
from tasks.shared.policies import champion, policy_row
from tasks.shared.weights import checkpoint_folder
from tests.clicker import clicked
from tests.flows.methods.test_group_flow import begun, grouped, result  # noqa: F401  (fixtures)
from tests.tiers import NIGHTLY


def judged(config: Config, tasks: tuple[str, ...] = ("click-target",), groups: int = 4, **ppo: Any) -> Config:
    fields = grouped(config, tasks, method="ppo", groups=groups).model_dump()
    fields["train"]["ppo"] |= {"batch": 4, "value_steps": 3, **ppo}
    return config_of(fields)


@pytest.mark.slow
def test_trajectories_are_judged_by_a_critic_that_is_kept_and_a_dead_sandbox_enters_nothing(
    small: Config,
    begun: Lake,  # noqa: F811
) -> None:
    flywheel(clicked(judged(small, ("dies",), groups=8), 0.4), iterations=1)
    trajectories = begun.read("trajectories", where={"iteration": 1}).to_pylist()
    alive = [row for row in trajectories if row["success"] is not None]
    assert {row["policy"] for row in trajectories} == {"policy"} and all(row["group_id"] for row in trajectories)
    row = policy_row(begun, "policy-0001")
    metrics = json.loads(row.metrics)
    assert (row.method, row.parent) == ("ppo", "policy-0000")
    assert metrics["plays"] == len(alive) and metrics["successes"] == sum(one["success"] for one in alive)
    assert metrics["environment_failures"] == len(trajectories) - len(alive) > 0
    assert metrics["samples"] == sum(one["n_steps"] for one in alive)
    assert 0 < metrics["value_steps"] <= 3 and metrics["critic_kept"] == 0 and metrics["tokens"] > 0
    assert {"explained_variance", "explained_variance_before", "policy_lambda", "mismatch"} <= metrics.keys()
    before, after = (checkpoint_folder(begun, version) for version in ("policy-0000", "policy-0001"))
    assert (after / CRITIC).exists() and not (before / CRITIC).exists()
    assert (before / "model.safetensors").read_bytes() != (after / "model.safetensors").read_bytes()
    trained_on = lineage_of(begun, "policy-0001").trajectories
    assert trained_on == sorted(one["trajectory_id"] for one in alive)

    if NIGHTLY:
        version = retrain(small, like="policy-0001")
        again = policy_row(begun, version)
        assert (again.method, again.parent) == ("ppo", "policy-0000")
        assert json.loads(again.metrics)["samples"] == metrics["samples"]


@pytest.mark.slow
def test_one_reward_for_all_trajectories_is_said_and_the_champion_stays(
    small: Config,
    begun: Lake,  # noqa: F811
) -> None:
    flywheel(clicked(judged(small), 0.0), iterations=1)
    trained = result(begun, "train")
    assert "one reward for all 16 trajectories" in trained["say"] and trained["samples"] == 0
    assert champion(begun).policy_version == "policy-0000"
