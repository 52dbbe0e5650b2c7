"""What a restart plays: what is missing, and the next attempts that a kill kept from being made."""

from rollout.player import ATTEMPTS, left_of
from rollout.session import Play
from schemas.trajectory import trajectory_id
from tests.parts import FAKE


def a_play(attempt: int, stride: int = 4) -> Play:
    task = FAKE.task("click-target")
    name = trajectory_id("lake", 1, task.task_id, 7, "policy", "policy-0000", attempt)
    return Play(name, 1, "lake", task, 7, attempt, "policy", "policy-0000", stride=stride)


def test_what_is_finished_is_not_played_again() -> None:
    plays = [a_play(attempt) for attempt in range(4)]
    finished = {plays[0].trajectory_id: None, plays[2].trajectory_id: "policy"}
    assert left_of(plays, finished) == [plays[1], plays[3]]


def test_where_the_environment_failed_the_next_attempt_is_left_until_there_is_none() -> None:
    first = a_play(1)
    assert [one.attempt for one in left_of([first], {first.trajectory_id: "sandbox"})] == [5]
    dead: dict[str, str | None] = {a_play(1 + 4 * tried).trajectory_id: "sandbox" for tried in range(ATTEMPTS)}
    assert left_of([first], dead) == []
    second_worked = {first.trajectory_id: "sandbox", a_play(5).trajectory_id: None}
    assert left_of([first], second_worked) == []
