"""Retry object-store operations while the store is unreachable, and report the outage once.

Only repeatable operations are retried: readers change nothing, writers of tables read the current state before each
commit, and a file is written whole or not at all. A library of retries (stamina, tenacity) would replace the growing
pause alone: the time allowed starts when a place first answers, and its clients share one report of an outage.
"""

import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from common import log
from schemas.failure import StoreStillUnreachable, StoreUnreachable
from storage.explained import explained

T = TypeVar("T")
FIRST_S, LONGEST_S = 0.5, 15.0
"""First and longest pause in seconds; the pause doubles after each failure."""


class StoreRetry:
    """Retry policy shared by all clients of one place; the first to notice an outage or its end reports it.

    Args:
        place: its address.
    """

    def __init__(self, place: str) -> None:
        self._place, self._seconds = place, 0.0
        self._lock = threading.Lock()
        self._away: float | None = None

    def allow(self, seconds: float) -> None:
        """Let one operation wait for so many seconds from now on: the place has answered, so its address is right."""
        self._seconds = seconds

    def over(self, operation: Callable[[], T]) -> T:
        """Run an operation until the place answers, and return its result.

        Raises:
            StoreUnreachable: the place did not answer for too long.
            LakeError: another problem that the user can fix, raised at once.
        """
        began, pause = time.monotonic(), FIRST_S
        while True:
            try:
                with explained(self._place):
                    found = operation()
            except StoreStillUnreachable:
                raise
            except StoreUnreachable as error:
                waited = time.monotonic() - began
                if not self._seconds:
                    raise
                if waited + pause > self._seconds:
                    problem = f"{error.problem.removesuffix('.')}, for {waited:.0f} s (`lake.patience_s`)."
                    raise StoreStillUnreachable(problem, error.hint) from error
                self._missed(error)
                time.sleep(pause * random.uniform(0.75, 1.25))
                pause = min(2 * pause, LONGEST_S)
            else:
                self._answered()
                return found

    def _missed(self, error: StoreUnreachable) -> None:
        with self._lock:
            if self._away is None:
                self._away = time.monotonic()
                until = datetime.now().astimezone() + timedelta(seconds=self._seconds)
                _report(f"{error.problem} Waiting for it, until {until:%H:%M:%S} at the most (`lake.patience_s`).")

    def _answered(self) -> None:
        if self._away is None:
            return
        with self._lock:
            if self._away is not None:
                _report(f"{self._place} answers again after {time.monotonic() - self._away:.0f} s.")
                self._away = None


def _report(text: str) -> None:
    log.write("warning", text)
