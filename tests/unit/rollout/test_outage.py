"""A rollout whose sandboxes or server fail most trajectories stops early, says why, and leaves further attempts."""

import pytest

from models.policy import EXPLORERS
from rollout.actor import Actor
from rollout.runner import roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import config_of
from schemas.failure import EnvironmentDown
from tasks.running.console import bar
from tests.parts import FAKE

CONFIG = config_of({"environments": {"fake": {"sandboxes": 4}}, "suite": {"tasks": ["dies"]}, "collect": {"chunk": 4}})


def rolled_out(seeds: range) -> tuple[list[FinishedTrajectory], EnvironmentDown | None]:
    """What was handed on, and what stopped it."""
    task, found = FAKE.task("dies"), []
    planned = [PlannedTrajectory("lake", "run", 0, task, seed, "explorer", "page", temperature=1.0) for seed in seeds]
    with Actor(EXPLORERS.class_of("page")(), 1.0) as explorer:
        try:
            roll_out_all(CONFIG, planned, lambda _: [explorer], found.extend, bar, "collect", for_data=True)
        except EnvironmentDown as error:
            return found, error
    return found, None


def test_where_every_sandbox_dies_it_stops_after_a_few_and_quotes_the_last_error() -> None:
    found, error = rolled_out(range(0, 900, 3))  # `dies` dies where three divides its seed
    assert error is not None
    assert "20 of the last 20 trajectories failed" in str(error) and "the fake box died" in str(error)
    assert 20 <= len(found) < 40
    assert {one.trajectory.attempt for one in found} == {0}, "the same command has all further attempts left"


def test_where_a_third_dies_all_are_rolled_out_and_the_dead_three_times() -> None:
    found, error = rolled_out(range(120))
    assert error is None
    assert sorted(one.trajectory.attempt for one in found) == [0] * 120 + [1] * 40 + [2] * 40


@pytest.mark.parametrize("boundary", ["server", "judge"])
def test_the_hint_says_whom_to_look_at(boundary: str) -> None:
    from rollout.outage import Outage

    found, _ = rolled_out(range(3))
    failed = found[0].trajectory.model_copy(update={"failure_boundary": boundary, "failure_reason": "no\nanswer."})
    outage = Outage(4)
    with pytest.raises(EnvironmentDown, match=rf"\({boundary}\).*no answer\. .*{boundary}.*flywheel doctor.*goes on"):
        for _ in range(40):
            outage.note(failed)
