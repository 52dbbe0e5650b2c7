"""When a training counts as hung, told from beats alone."""

import time

import pytest

from learning import status_folder
from learning.status_folder import Heartbeat
from tasks.launching.trainer_process import Watch
from tests.fixtures.sentences import Sentences


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def beat(count: int, step: int, doing: str = "") -> Heartbeat:
    return Heartbeat(count=count, host="node-1", process=7, doing=doing, step=step)


def found(watch: Watch, clock: list[float], seconds: float, count: int, *ranks: Heartbeat | None) -> str | None:
    """What the watch says within so many seconds, in which all ranks given as None beat without a step."""
    answer = None
    for at in range(int(seconds)):
        clock[0] += 1.0
        beats = {rank: one or beat(count + at, 3) for rank, one in enumerate(ranks)}
        answer = answer or watch.look(beats)
    return answer


def test_a_rank_that_is_not_heard_of_for_a_minute_hangs_and_is_named(clock: list[float]) -> None:
    watch = Watch(60.0)
    assert found(watch, clock, 59, 1, None, beat(1, 3)) is None
    answer = found(watch, clock, 4, 60, None, beat(1, 3))
    assert answer is not None and answer.startswith("rank 1 (process 7 on node-1) was not heard of for 6")


def test_ranks_that_beat_and_take_no_step_hang_after_a_minute(clock: list[float], sentence: Sentences) -> None:
    watch = Watch(60.0)
    assert found(watch, clock, 59, 1, None, None) is None
    sentence(found(watch, clock, 4, 60, None, None))


def test_a_training_of_long_steps_has_ten_times_the_longest(clock: list[float]) -> None:
    watch, count = Watch(60.0), 0
    for step in range(1, 4):
        for _ in range(30):
            clock[0] += 1.0
            count += 1
            assert watch.look({0: beat(count, step)}) is None
    answer, waited = None, 0
    while answer is None:
        clock[0] += 1.0
        count, waited = count + 1, waited + 1
        answer = watch.look({0: beat(count, 3)})
    assert 250 <= waited <= 310


def test_what_is_no_step_may_take_as_long_as_it_takes(clock: list[float]) -> None:
    watch, count = Watch(60.0), 0
    for doing in ("starting", "saving a checkpoint", "writing, or waiting for a batch"):
        for _ in range(500):
            clock[0] += 1.0
            count += 1
            assert watch.look({0: beat(count, 0, doing), 1: beat(count, 0, doing)}) is None


def test_a_rank_that_has_ended_is_not_waited_for(clock: list[float]) -> None:
    watch = Watch(60.0)
    for count in range(200):
        clock[0] += 1.0
        assert watch.look({0: beat(count, 9, "writing"), 1: beat(4, 9, status_folder.ENDED)}) is None


def test_a_machine_that_slept_has_not_hung(clock: list[float]) -> None:
    watch = Watch(60.0)
    assert watch.look({0: beat(1, 3)}) is None
    clock[0] += 3600.0
    assert watch.look({0: beat(1, 3)}) is None
    assert watch.look({0: beat(2, 4)}) is None
