"""Retry object-store operations while the store is unreachable, and report the outage once.

Only repeatable operations are retried: reads, commits that first read the table's current state, and atomic writes of
files. A library such as stamina or tenacity would replace only the growing pauses. Retries are allowed only after the
store has answered once, and all clients of a store share one report of an outage.
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
"""First and longest pause between retries, in seconds. The pause doubles after each failure."""


class StoreRetry:
    """Retry policy that all clients of one store share. The first client that notices an outage or its end reports it.

    Args:
        place: address of the store.
    """

    def __init__(self, place: str) -> None:
        self._place, self._seconds = place, 0.0
        self._lock = threading.Lock()
        self._unreachable_since: float | None = None

    def allow(self, seconds: float) -> None:
        """Allow retries of one operation for this many seconds. Call it after the store has answered once."""
        self._seconds = seconds

    def over(self, operation: Callable[[], T]) -> T:
        """Run an operation, retrying it while the store is unreachable, and return its result.

        Raises:
            StoreUnreachable: the store did not answer in time.
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
                self._report_outage(error)
                time.sleep(pause * random.uniform(0.75, 1.25))
                pause = min(2 * pause, LONGEST_S)
            else:
                self._report_answer()
                return found

    def _report_outage(self, error: StoreUnreachable) -> None:
        with self._lock:
            if self._unreachable_since is None:
                self._unreachable_since = time.monotonic()
                until = datetime.now().astimezone() + timedelta(seconds=self._seconds)
                waiting = f"Waiting for it, until {until:%H:%M:%S} at the most (`lake.patience_s`)."
                log.write("warning", f"{error.problem} {waiting}")

    def _report_answer(self) -> None:
        if self._unreachable_since is None:
            return
        with self._lock:
            if self._unreachable_since is not None:
                waited = time.monotonic() - self._unreachable_since
                log.write("warning", f"{self._place} answers again after {waited:.0f} s.")
                self._unreachable_since = None
