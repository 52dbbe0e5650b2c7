"""Sum the processor time of a process and its descendants."""

from collections.abc import Collection
from contextlib import suppress

import psutil


def cpu_seconds(pid: int | None = None, without: Collection[int] = ()) -> float:
    """So far, of a process (this one if none is named) and all below it but some; of those that ended, what their
    parents have waited for."""
    total, waiting = 0.0, [psutil.Process(pid)]
    while waiting:
        process = waiting.pop()
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
            waiting += [child for child in process.children() if child.pid not in without]
    return total
