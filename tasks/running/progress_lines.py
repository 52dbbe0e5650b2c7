"""Print the progress of a command if standard error is not a terminal: after a few seconds, then once a minute.

On a terminal, progress bars and status lines show the progress instead.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from common import log
from common.text import lasting
from tasks.running import console
from tasks.running.run_status import CURRENT, RunStatus

FIRST_S, EVERY_S = 3.0, 60.0
"""Seconds until the first line, and between two lines."""
VERBOSE_S = 10.0
"""Seconds between two lines of a verbose command (`-v`)."""
_POLL_S = 1.0
_active = threading.Lock()


@contextmanager
def progress_lines(begin: str) -> Iterator[None]:
    """Print the start of the enclosed work and its progress to standard error.

    Inside another such block, in a quiet command, or if standard error is a terminal, nothing is printed.

    Args:
        begin: text of the first line.
    """
    if console.quiet() or console.err().is_terminal or not _active.acquire(blocking=False):
        yield
        return
    over = threading.Event()
    printer = threading.Thread(target=_print_lines, args=(begin, over), name="progress lines", daemon=True)
    printer.start()
    try:
        yield
    finally:
        over.set()
        printer.join()
        _active.release()


def _print_lines(begin: str, over: threading.Event) -> None:
    pace, last, every_s = Pace(), "", min(EVERY_S, VERBOSE_S) if log.volume() == "verbose" else EVERY_S
    if over.wait(FIRST_S):
        return
    console.log_progress(begin)
    printed = time.monotonic()
    while not over.wait(min(_POLL_S, every_s)):
        text = pace.line(CURRENT.read(leases=False))
        if text not in ("", last) and time.monotonic() - printed >= every_s:
            console.log_progress(text)
            printed, last = time.monotonic(), text


class Pace:
    """Formats the progress of the work, and the remaining time at the pace since the first line."""

    def __init__(self) -> None:
        self._work: tuple[object, ...] = ()
        self._first = (0.0, 0.0)

    def line(self, now: RunStatus) -> str:
        """Return the line for a status; empty between two stages."""
        name = now.stage or now.label
        if not name:
            return ""
        work = (now.iteration, now.stage, now.label, now.total)
        if work != self._work:
            self._work, self._first = work, (now.heard, now.done)
        head = "" if now.iteration is None else f"{console.head_of(now.iteration)}  "
        what = name if now.label in ("", now.stage) or not now.stage else f"{now.stage}, {now.label}"
        return f"{head}{': '.join(one for one in (what, ', '.join(self._parts(now))) if one)}"

    def _parts(self, now: RunStatus) -> Iterator[str]:
        if now.total:
            yield f"{now.done:,.0f} of {now.total:,.0f}"
        elif now.done:
            yield f"{now.done:,.0f} so far"
        spent, made = now.heard - self._first[0], now.done - self._first[1]
        if now.total and made > 0 and spent > 0:
            yield f"about {lasting(spent * max(0.0, now.total - now.done) / made)} left"
        elif now.since:
            yield f"running for {lasting(max(0.0, now.heard - now.since))}"
        if now.message:
            yield now.message
