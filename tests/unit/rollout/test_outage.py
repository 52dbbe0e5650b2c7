"""A rollout in whose environment nothing works any more stops early and names the tasks; a few bad tasks do not."""

from collections.abc import Sequence
from typing import Any

import pytest

from models.policy import EXPLORERS
from rollout.actor import Actor
from rollout.failures import always_failing
from rollout.runner import Outage, roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import config_of
from schemas.failure import EnvironmentDown
from schemas.tables.trajectory import Trajectory
from tasks.running.console import bar
from tests.fixtures.sentences import Sentences
from tests.parts import FAKE

TASKS = ["dies", "click-one", "click-red"]
CONFIG = config_of({"environments": {"fake": {"sandboxes": 4}}, "suite": {"tasks": TASKS}, "collect": {"chunk": 4}})


def rolled_out(
    seeds: range, templates: Sequence[str] = ("dies",)
) -> tuple[list[FinishedTrajectory], EnvironmentDown | None]:
    """What was handed on, and what stopped it."""
    found: list[FinishedTrajectory] = []
    planned = [
        PlannedTrajectory("lake", "run", 0, FAKE.task(name), seed, "explorer", "page", temperature=1.0)
        for seed in seeds
        for name in templates
    ]
    with Actor(EXPLORERS.class_of("page")(), 1.0) as explorer:
        try:
            roll_out_all(CONFIG, planned, lambda _: [explorer], found.extend, bar, "collect", for_data=True)
        except EnvironmentDown as error:
            return found, error
    return found, None


@pytest.fixture(scope="module")
def failed() -> Trajectory:
    return rolled_out(range(1))[0][0].trajectory


def ended(failed: Trajectory, task: str, **fields: Any) -> Trajectory:
    return failed.model_copy(update={"task_id": task, **fields})


def test_where_every_sandbox_dies_it_stops_after_a_few_and_names_task_count_and_reason(sentence: Sentences) -> None:
    found, error = rolled_out(range(0, 900, 3))  # `dies` dies where three divides its seed
    assert error is not None
    sentence(error, "`fake`", "fake/dies", hint="flywheel doctor")
    assert 20 <= len(found) < 40
    assert {one.trajectory.attempt for one in found} == {0}, "the same command has all further attempts left"


def test_where_a_third_dies_all_are_rolled_out_and_the_dead_three_times() -> None:
    found, error = rolled_out(range(120))
    assert error is None
    assert sorted(one.trajectory.attempt for one in found) == [0] * 120 + [1] * 40 + [2] * 40


def test_a_task_that_always_fails_stops_no_other() -> None:
    found, error = rolled_out(range(0, 120, 3), TASKS)
    assert error is None
    whole = [one.trajectory for one in found]
    (failing,) = always_failing((one.task_id, one.failure_boundary, one.failure_reason) for one in whole)
    assert failing.text == "fake/dies: 120 of 120 failed in the sandbox: the fake box died, as it was made to"
    assert sum(bool(one.success) for one in whole) > 0


def test_groups_of_one_bad_task_that_follow_each_other_are_no_outage(failed: Trajectory, sentence: Sentences) -> None:
    outage = Outage("fake", tasks=2, at_once=4)
    for _ in range(60):
        outage.note(ended(failed, "fake/bad"))
    with sentence.raises(EnvironmentDown, "fake/bad", "fake/good", hint="flywheel doctor"):
        outage.note(ended(failed, "fake/good"))


def test_the_message_quotes_the_commonest_reason_and_names_the_tasks_that_failed_most(
    failed: Trajectory, sentence: Sentences
) -> None:
    outage = Outage("fake", tasks=100, at_once=4)
    outage.note(ended(failed, "fake/early", failure_reason="once"))
    outage.note(ended(failed, "fake/early", failure_boundary=None, failure_reason=None))
    with sentence.raises(EnvironmentDown, "fake/0", "fake/4", hint="flywheel doctor"):
        for number in range(20):
            reason = "another" if number % 7 == 0 else "the browser\nhas died."
            outage.note(ended(failed, f"fake/{number % 7}", failure_reason=reason))


@pytest.mark.parametrize("boundary", ["server", "judge"])
def test_the_hint_says_whom_to_look_at(boundary: str, failed: Trajectory, sentence: Sentences) -> None:
    outage = Outage("fake", tasks=1, at_once=4)
    with sentence.raises(EnvironmentDown, boundary, hint="flywheel doctor"):
        for _ in range(40):
            outage.note(ended(failed, "fake/dies", failure_boundary=boundary, failure_reason="no\nanswer."))
