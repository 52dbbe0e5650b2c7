"""What an iteration rolls out of what its curriculum chose, when the suite is not the same any more."""

from pathlib import Path
from typing import Any, cast

import pytest

from schemas.config import config_of
from schemas.failure import UsageError
from schemas.tables.curriculum import CurriculumChoice
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.collect.collect import plan
from tasks.curriculum import choose_tasks
from tasks.running.run import Run
from tests.fixtures.sentences import Sentences


def run(tmp_path: Path, *tasks: str, **hybrid: Any) -> Run:
    fields = {"lake": {"uri": str(tmp_path / "lake")}, "suite": {"tasks": list(tasks), "held_out": []}}
    config = config_of({**fields, "environments": {"fake": {}, "hybrid": hybrid}})
    return Run(config, Lake.open(config.lake), "run")


def chosen(task_id: str) -> CurriculumChoice:
    return CurriculumChoice(
        iteration=0, task_id=task_id, weight=0.5, explorer_trajectories=3, policy_trajectories=0, relay_trajectories=0,
        pool="unseen", successes=0.0, failures=0.0, reason="unseen",
    )  # fmt: skip


def test_an_iteration_goes_on_without_the_tasks_of_an_environment_that_cannot_be_played_any_more(
    tmp_path: Path, no_bubblewrap: None
) -> None:
    begun = run(tmp_path, "click-target", "files-open", optional=True)
    begun.lake.append("curriculum", [chosen("fake/click-target"), chosen("hybrid/files-open")])
    assert {one.task.task_id for one in plan(begun, 0, "policy-0000")} == {"fake/click-target"}


def test_a_task_that_was_taken_out_of_the_suite_is_named(tmp_path: Path, sentence: Sentences) -> None:
    begun = run(tmp_path, "click-target")
    begun.lake.append("curriculum", [chosen("fake/click-target"), chosen("fake/note")])
    with sentence.raises(UsageError, "fake/note", hint="suite.tasks"):
        plan(begun, 0, "policy-0000")


def test_a_task_that_joins_a_lake_later_is_in_its_table_of_tasks_and_what_is_left_out_is_said(
    tmp_path: Path, no_bubblewrap: None, sentence: Sentences
) -> None:
    begun = run(tmp_path, "click-target", "note", "files-open", optional=True)
    numbers = choose_tasks.fn(begun.config, 0)
    assert {one.task_id for one in begun.lake.rows(GuiTask)} == {"fake/click-target", "fake/note"}
    assert list(cast(dict[str, str], numbers["left_out"])) == ["hybrid"]
    sentence(numbers["say"])


@pytest.mark.parametrize(("base", "kinds"), [("tiny", {"explorer"}), ("/models/a-vlm", {"explorer", "policy"})])
def test_a_given_policy_acts_in_the_first_iteration_already(base: str, kinds: set[str], tmp_path: Path) -> None:
    begun = run(tmp_path, "click-target", "note")
    config = begun.config.model_copy(update={"policy": begun.config.policy.model_copy(update={"base": base})})
    choose_tasks.fn(config, 0)
    assert {one.policy for one in plan(begun, 0, "policy-initial")} == kinds


@pytest.mark.parametrize("iteration", [0, 1])
def test_a_policy_that_learns_from_its_own_replies_rolls_out_alone_from_the_first_iteration(
    tmp_path: Path, iteration: int
) -> None:
    begun = run(tmp_path, "click-target")
    fields = begun.config.model_dump()
    fields["train"]["method"] = "opd"
    choose_tasks.fn(config_of(fields), iteration)
    rows = begun.lake.rows(CurriculumChoice)
    assert {row.task_id for row in rows} == {"fake/click-target"}
    assert rows[0].policy_trajectories == begun.config.collect.trajectories_per_task
    assert (rows[0].explorer_trajectories, rows[0].relay_trajectories) == (0, 0)
