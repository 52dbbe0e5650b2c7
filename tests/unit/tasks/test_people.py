"""What people decide is in the next retraining without any other step, and in the lineage of what that makes."""

from pathlib import Path

import pytest

from apps.commands.lineage import lineage_of
from schemas.config import Config, config_of
from storage.lake import Lake
from tasks.retrain import pin_data, train_retrained
from tasks.shared.reviews import Draft, submit
from tests.unit.apps.conftest import make_place
from tests.unit.learning.samples import POLICY, parent

pytestmark = pytest.mark.usefixtures("forked")

BETTER = '{"type":"click","x":0.1,"y":0.9}'


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake of three iterations' trajectories, whose champion is a small policy that can be trained."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = make_place(tmp_path).lake
    checkpoint = lake.blobs.put_directory(parent(tmp_path), "checkpoints/small")
    rows = lake.read("policies").to_pylist()
    config = config_for(lake).canonical()
    lake.upsert("policies", [{**row, "checkpoint": checkpoint, "config": config} for row in rows])
    return lake


def config_for(lake: Lake, method: str = "sft") -> Config:
    return config_of(
        {
            "lake": {"uri": lake.uri, "min_free_mb": 1},
            "environments": {"fake": {}},
            "suite": {"tasks": ["click-target", "two-steps"]},
            "policy": POLICY.model_dump(),
            "train": {"method": method, "steps_first": 2, "steps": 2, "batch": 2, "processes": 1, "warmup": 1},
        }
    )


def failed(lake: Lake) -> str:
    where = {"success": False, "policy": "policy", "iteration": 2}
    return min(lake.read("trajectories", ["trajectory_id"], where)["trajectory_id"].to_pylist())


def retrained(lake: Lake, method: str) -> str:
    config = config_for(lake, method)
    return train_retrained.fn(config, pin_data.fn(config, None))


@pytest.mark.slow
def test_a_correction_is_a_preference_that_the_next_policy_learns_from(lake: Lake) -> None:
    name = failed(lake)
    submit(lake, Draft(name, 0, "ada", "correct", step=0, action=BETTER, thought="Below."))
    lake.delete("pairs", "true")  # as where a kill fell between the decision and what it becomes
    version = retrained(lake, "dpo")
    learned = lineage_of(lake, version)
    assert learned.trajectories == [name] and learned.metrics["samples"] == 1
    assert "reviews" in learned.row.pins


@pytest.mark.slow
def test_a_failure_that_a_person_accepted_is_imitated_by_the_next_policy(lake: Lake) -> None:
    before = pin_data.fn(config_for(lake), None).recipe.pins
    submit(lake, Draft(failed(lake), 0, "ada", "accept"))
    version = retrained(lake, "sft")
    learned = lineage_of(lake, version)
    assert failed(lake) in learned.trajectories
    assert lineage_of(lake, failed(lake)).policies[-1] == version
    assert learned.row.pins["verdicts"] == before["verdicts"] + 1
