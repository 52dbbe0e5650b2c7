"""What a restart rolls out: what is missing, and the next attempts that a kill kept from being made."""

from rollout.runner import missing
from rollout.trajectory import ATTEMPTS, PlannedTrajectory
from schemas.tables.trajectory import trajectory_id
from tests.parts import FAKE


def planned(attempt: int, stride: int = 4) -> PlannedTrajectory:
    task = FAKE.task("click-target")
    return PlannedTrajectory("lake", "run", 1, task, 7, "policy", "policy-0000", attempt, stride)


def test_an_identity_is_derived_from_what_is_rolled_out_and_not_from_the_run() -> None:
    one = planned(1)
    assert one.trajectory_id == trajectory_id("lake", 1, one.task.task_id, 7, "policy", "policy-0000", 1)
    assert one.trajectory_id != planned(2).trajectory_id
    other = PlannedTrajectory("lake", "another run", 1, one.task, 7, "policy", "policy-0000", 1)
    assert other.trajectory_id == one.trajectory_id and other.step_seed(3) == one.step_seed(3) != one.step_seed(4)


def test_what_is_finished_is_not_rolled_out_again() -> None:
    all_of_them = [planned(attempt) for attempt in range(4)]
    finished = {all_of_them[0].trajectory_id: None, all_of_them[2].trajectory_id: "policy"}
    assert missing(all_of_them, finished) == [all_of_them[1], all_of_them[3]]


def test_where_the_environment_failed_the_next_attempt_is_left_until_there_is_none() -> None:
    first = planned(1)
    assert [one.attempt for one in missing([first], {first.trajectory_id: "sandbox"})] == [5]
    dead: dict[str, str | None] = {planned(1 + 4 * tried).trajectory_id: "sandbox" for tried in range(ATTEMPTS)}
    assert missing([first], dead) == []
    second_worked = {first.trajectory_id: "sandbox", planned(5).trajectory_id: None}
    assert missing([first], second_worked) == []
