"""Detect that a desktop has settled: none of its processes computes, and two frames in a row are equal.

Frames alone are not enough: a program that still waits for the processor after a click shows the same frame. So a
process that waits for the processor counts as busy, too.
"""

import os
import time
from pathlib import Path

from environments.desktop.box.frames import Frames

APART_S = 0.008
"""Seconds between two checks."""
BUSY = ("R", "D")
"""States of a process that runs, waits for a processor, or for a disk."""


def descendants(pid: int) -> list[int]:
    """All processes that a process has started, and those have."""
    found, left = list[int](), [pid]
    while left:
        for place in _listed(Path(f"/proc/{left.pop()}/task")):
            try:
                children = (place / "children").read_text().split()
            except OSError:
                continue
            found += map(int, children)
            left += map(int, children)
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def work(pid: int) -> tuple[bool, dict[int, str]]:
    """Whether any descendant of `pid` is busy, and the processor time of each so far."""
    busy, spent = False, dict[int, str]()
    for one in descendants(pid):
        try:
            state = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0]
            spent[one] = Path(f"/proc/{one}/schedstat").read_text().split()[0]
        except (OSError, IndexError):
            continue  # ended since
        busy = busy or state in BUSY
    return busy, spent


def settled(frames: Frames, limit_s: float) -> bool:
    """Waits until the desktop settles; False if it did not within the limit."""
    until = time.monotonic() + limit_s
    before: tuple[bytes, dict[int, str]] | None = None
    while True:
        busy, spent = work(os.getpid())
        now = (frames.grab(), spent)
        if not busy and now == before:
            return True
        if time.monotonic() > until:
            return False
        before = now
        time.sleep(APART_S)
