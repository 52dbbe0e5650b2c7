"""The beat of a rank: that it lives and how far it has come, and that it goes when nobody waits for it any more.

A rank that is stopped, or whose machine is gone, beats no more; one that waits for another in vain beats and takes no
step. Whoever started the training can tell them from those that work. On every beat a rank looks whether its start is
over: a machine that nobody can reach then ends its ranks by itself, and two trainings never write to one place.
"""

import os
import socket
import threading
import time
from contextlib import suppress

from learning.status_folder import Heartbeat, StatusFolder
from schemas.failure import LakeError

LONGEST_S = 5.0
"""Between two beats."""
BEATS = 12
"""In the time after which a rank counts as hung, at the least."""
ENDED = "ended"
"""What a rank is doing that will beat no more."""
ALONE = 2.0
"""A rank goes when whoever started it was not heard of for this many times what makes a rank count as hung."""


def every(hung_s: float) -> float:
    """Seconds between two beats."""
    return min(LONGEST_S, hung_s / BEATS)


class StallTimer:
    """How long something has stood still, in seconds that this process was awake: a machine may sleep.

    Args:
        longest_s: what one look counts at the most.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s, self._seen, self._last = longest_s, object(), time.monotonic()
        self.idle_s = 0.0
        """Since it last changed."""

    def look(self, seen: object) -> float:
        """Looks at it; how long it had stood still where it has changed, else 0."""
        now = time.monotonic()
        self.idle_s += min(now - self._last, self._longest_s)
        self._last = now
        if seen == self._seen:
            return 0.0
        stood, self._seen, self.idle_s = self.idle_s, seen, 0.0
        return stood


class HeartbeatThread:
    """A rank's own; without a board, of a training that was started by hand, it does nothing.

    Args:
        board: of this start.
        rank: this one.
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
        """So many steps were taken, and the next one begins."""
        self._doing, self._step = "", step

    def rest(self, doing: str) -> None:
        """Something begins that is no step and may take long."""
        self._doing = doing

    def close(self) -> None:
        """Beats a last time."""
        if self._thread is not None and self._board is not None:
            self._closed.set()
            self._thread.join()
            self._doing = ENDED
            with suppress(LakeError, OSError):
                self._beat(self._board)

    def _run(self, board: StatusFolder) -> None:
        starter = StallTimer(2 * self._every)
        while not self._closed.wait(self._every if self._count else 0):
            with suppress(LakeError, OSError):  # whoever waits for a beat notices
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
