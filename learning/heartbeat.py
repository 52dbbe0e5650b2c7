"""Heartbeats of a rank: they show that it is alive and how far it is, and end it when its start is over.

A rank that is stopped, or whose machine is gone, sends no more heartbeats; a rank that hangs in a collective sends them
but takes no step. The starter can distinguish both from working ranks. At every heartbeat a rank checks whether its
start is over: an unreachable machine then ends its ranks by itself, and two trainings never write to one place.
"""

import os
import socket
import threading
import time
from contextlib import suppress

from learning.status_folder import Heartbeat, StatusFolder
from schemas.failure import LakeError

LONGEST_S = 5.0
"""Maximum seconds between two heartbeats."""
BEATS = 12
"""Minimum number of heartbeats in the time after which a rank counts as hung."""
ENDED = "ended"
"""`doing` of a rank that will send no more heartbeats."""
ALONE = 2.0
"""Multiple of `train.hung_s` after which a rank ends if it has no heartbeat of the starter."""


def every(hung_s: float) -> float:
    """Computes the seconds between two heartbeats."""
    return min(LONGEST_S, hung_s / BEATS)


class StallTimer:
    """Measures how long a value has not changed, in seconds that this process was awake: a machine may sleep.

    Args:
        longest_s: the maximum seconds counted between two polls.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s, self._seen, self._last = longest_s, object(), time.monotonic()
        self.idle_s = 0.0
        """Seconds since the last change."""

    def look(self, seen: object) -> float:
        """Compares with the last value; returns the seconds without change if it has changed, else 0."""
        now = time.monotonic()
        self.idle_s += min(now - self._last, self._longest_s)
        self._last = now
        if seen == self._seen:
            return 0.0
        stood, self._seen, self.idle_s = self.idle_s, seen, 0.0
        return stood


class HeartbeatThread:
    """Sends a rank's heartbeats; does nothing without a status folder, in a training started by hand.

    Args:
        board: the status folder of this start.
        rank: this rank.
        hung_s: `train.hung_s`.
    """

    def __init__(self, board: StatusFolder | None = None, rank: int = 0, hung_s: float = 60.0) -> None:
        self._board, self._rank, self._every, self._alone = board, rank, every(hung_s), ALONE * hung_s
        self._doing, self._step, self._count = "starting", 0, 0
        self._closed, self._thread = threading.Event(), None
        if board is not None:
            self._thread = threading.Thread(target=self._run, args=(board,), name="pulse", daemon=True)
            self._thread.start()

    def step(self, step: int) -> None:
        """Sets the number of steps taken; the next step begins."""
        self._doing, self._step = "", step

    def rest(self, doing: str) -> None:
        """Marks the start of a phase that is no step and may take long."""
        self._doing = doing

    def close(self) -> None:
        """Sends a last heartbeat."""
        if self._thread is not None and self._board is not None:
            self._closed.set()
            self._thread.join()
            self._doing = ENDED
            with suppress(LakeError, OSError):
                self._beat(self._board)

    def _run(self, board: StatusFolder) -> None:
        starter = StallTimer(2 * self._every)
        while not self._closed.wait(self._every if self._count else 0):
            with suppress(LakeError, OSError):  # the starter notices a missing heartbeat
                self._beat(board)
                if board.ended():
                    os._exit(1)
                starter.look(board.kept())
            if starter.idle_s > self._alone:
                os._exit(1)

    def _beat(self, board: StatusFolder) -> None:
        self._count += 1
        host, process = socket.gethostname(), os.getpid()
        board.beat(
            self._rank, Heartbeat(count=self._count, host=host, process=process, doing=self._doing, step=self._step)
        )
