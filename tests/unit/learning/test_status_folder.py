"""What a start of a training and its starter leave each other, and that a rank goes when nobody waits for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from learning.status_folder import ENDED, Heartbeat, HeartbeatThread, StatusFolder

WAITS = """
import sys, time
from learning.status_folder import StatusFolder
from learning.status_folder import HeartbeatThread
pulse = HeartbeatThread(StatusFolder(sys.argv[1]), 3, hung_s=1.0)
time.sleep(60)
"""


@pytest.fixture(params=["folder", "memory"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> StatusFolder:
    return StatusFolder(tmp_path / "board" if request.param == "folder" else f"memory://{tmp_path.name}/board")


def test_messages_are_read_in_their_order_and_another_process_goes_on_behind_them(board: StatusFolder) -> None:
    assert board.message(1) is None
    board.send({"step": 1})
    board.send({"step": 2})
    StatusFolder(board.place).send({"resumed": 2})
    assert [board.message(number) for number in (1, 2, 3, 4)] == [{"step": 1}, {"step": 2}, {"resumed": 2}, None]


def test_the_last_beat_of_every_rank_is_read(board: StatusFolder) -> None:
    assert board.beats() == {}
    for rank, count in ((0, 1), (1, 1), (1, 2)):
        board.beat(rank, Heartbeat(count=count, host="here", process=1, doing="", step=5))
    assert {rank: beat.count for rank, beat in board.beats().items()} == {0: 1, 1: 2}


def test_machines_meet_at_the_address_of_the_first(board: StatusFolder) -> None:
    assert board.lead("10.0.0.1:1") == "10.0.0.1:1"
    assert StatusFolder(board.place).lead("10.0.0.2:1") == "10.0.0.1:1"


def test_complaints_name_who_made_them(board: StatusFolder) -> None:
    board.complain("node-2", "there is no GPU")
    assert board.complaints() == ["node-2: there is no GPU"]


def test_a_pulse_says_how_far_a_rank_is_and_at_last_that_it_has_ended(tmp_path: Path) -> None:
    board = StatusFolder(tmp_path)
    pulse = HeartbeatThread(board, 0, hung_s=1.2)
    pulse.step(7)
    pulse.close()
    (beat,) = board.beats().values()
    assert beat.doing == ENDED and beat.step == 7 and not board.ended()


@pytest.mark.parametrize("over", [True, False])
def test_a_rank_ends_by_itself_when_its_start_is_over_or_its_starter_is_not_heard_of(
    tmp_path: Path, over: bool
) -> None:
    board = StatusFolder(tmp_path)
    board.keep(1)
    if over:
        board.end()
    waiting = subprocess.Popen([sys.executable, "-c", WAITS, str(tmp_path)])
    assert waiting.wait(timeout=40) == 1
    assert board.beats()[3].host
