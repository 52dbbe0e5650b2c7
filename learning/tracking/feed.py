"""Feeds a tracker from a thread of its own: the training never waits for it, and never ends because of it."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from learning.tracking.tracker import Point, Tracker

PATIENCE_S = 60.0
"""Maximum seconds that the end of a training waits for a tracker's remaining points."""


class Feed:
    """One tracker's run.

    Args:
        name: the tracker's, for messages.
        make: makes it.
        resumed: steps that are kept of earlier starts.
        warn: called once with the tracker's error; nothing more is sent then.
    """

    def __init__(self, name: str, make: Callable[[], Tracker], resumed: int, warn: Callable[[str], None]) -> None:
        self._name, self._make, self._resumed, self._warn = name, make, resumed, warn
        self._waiting: SimpleQueue[Sequence[Point] | bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, points: Sequence[Point]) -> None:
        """Queues points; returns at once."""
        self._waiting.put(points)

    def finish(self, whole: bool, patience_s: float = PATIENCE_S) -> None:
        """Ends the run once everything is sent; abandons one that takes longer than `patience_s`."""
        self._waiting.put(whole)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            self._warn(
                f"tracker {self._name}: given up, it has taken {patience_s:g} s to end; the lake has every step."
            )

    def _run(self) -> None:
        try:
            tracker = self._make()
            tracker.start(self._resumed)
            while not isinstance(given := self._waiting.get(), bool):
                tracker.log(given)
            tracker.finish(given)
        except Exception as error:  # the training goes on after any error of a tracker
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            self._warn(f"tracker {self._name}: {reason}; nothing more is sent to it, the lake has every step.")
