"""Read the X server's screen from the file that it draws into, and encode it as PNG.

Xvfb keeps its screen in a memory-mapped file in the X window dump format (`-fbdir`), so a capture is a copy of memory.
The file includes the pointer, unlike the answer of `XGetImage`.

Detect that a desktop has settled: none of its processes computes, and two frames in a row are equal.

Frames alone are not enough: a program that still waits for the processor after a click shows the same frame. So a
process that waits for the processor counts as busy, too.
"""

import mmap
import os
import struct
import time
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

COLOUR_BYTES = 12
"""Bytes of one entry of the dump's colour table, which lies between its header and its pixels."""
HOW = (cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE)
"""PNG options: no filters, which on screens of programs cost four times the time and save nothing."""


class Frames:
    """Looks at one screen.

    Args:
        folder: given to Xvfb as `-fbdir`.
    """

    def __init__(self, folder: Path) -> None:
        with (folder / "Xvfb_screen0").open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header = struct.unpack(">25I", self._map[:100])
        self._at = header[0] + COLOUR_BYTES * header[19]
        self.width, self.height, self._line = header[4], header[5], header[12]
        self._encoded: tuple[bytes, bytes] = (b"", b"")

    def grab(self) -> bytes:
        """The current pixels, row by row: four bytes each, blue, green, red and an unused one."""
        return self._map[self._at : self._at + self._line * self.height]

    def png(self, frame: bytes) -> bytes:
        """A frame as PNG; the last one is not encoded again."""
        if frame != self._encoded[0]:
            self._encoded = (frame, encoded(frame, self.width, self.height, self._line))
        return self._encoded[1]


def encoded(frame: bytes, width: int, height: int, line: int) -> bytes:
    """A frame of `line` bytes a row as PNG; raises ValueError if it cannot be."""
    pixels: npt.NDArray[np.uint8] = np.frombuffer(frame, np.uint8).reshape(height, line // 4, 4)[:, :width]
    done, png = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_BGRA2BGR), HOW)
    if not done:
        raise ValueError(f"a frame of {width} x {height} cannot be written as PNG")
    return png.tobytes()


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
