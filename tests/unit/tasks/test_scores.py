"""Scores in what is measured, and a threshold that changes in the config of a lake that is there."""

from pathlib import Path

import pytest

from environments.games.environment import GamesConfig, GamesEnvironment
from schemas.config.sections import LakeConfig
from schemas.tables.evaluation import Evaluation
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.evaluate import summary
from tasks.prepare import renewed

GAMES = GamesEnvironment("games", GamesConfig())


def evaluation(seed: int, success: bool | None, reward: float | None) -> Evaluation:
    return Evaluation(
        policy_version="p",
        suite="suite",
        task_id="games/snake-1",
        seed=2_000_000 + seed,
        iteration=0,
        success=success,
        reward=reward,
        n_steps=3,
        failure_boundary=None if success is not None else "sandbox",
    )


def test_what_is_measured_of_a_task_is_its_success_and_its_mean_reward_without_outages() -> None:
    found = summary([evaluation(0, True, 1.0), evaluation(1, False, 0.5), evaluation(2, None, None)])
    assert found.success == 0.5
    assert (found.tasks["games/snake-1"].reward, found.tasks["games/snake-1"].n) == (0.75, 2)


def test_another_threshold_in_the_config_is_the_lake_s_from_then_on_and_nothing_else_is_touched(
    tmp_path: Path,
) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    first = GAMES.task("snake-1")
    lake.append("tasks", [first, GAMES.task("maze-1")])
    changed = first.model_copy(update={"threshold": 0.5, "graded": False, "max_steps": 7})
    (found,) = renewed(lake, [changed, GAMES.task("maze-1")])
    assert found == first.model_copy(update={"threshold": 0.5, "graded": False})
    lake.upsert("tasks", [found])
    assert renewed(lake, [changed]) == [] and len(lake.rows(GuiTask)) == 2


@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_a_threshold_that_nothing_or_everything_reaches_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        GAMES.entries["snake-1"].model_validate({**GAMES.entries["snake-1"].model_dump(), "threshold": threshold})
