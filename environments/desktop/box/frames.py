"""Read the X server's screen from the file that it draws into, and encode it as PNG.

Xvfb keeps its screen in a memory-mapped file in the X window dump format (`-fbdir`), so a capture is a copy of memory.
The file includes the pointer, unlike the answer of `XGetImage`.

A desktop has settled if none of its processes computes and two consecutive frames are equal.

Frames alone are not enough, since a program that waits for the processor after a click shows the same frame. So a
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
"""Bytes of one entry of the dump's colour table, which is between the header and the pixels."""
HOW = (cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE)
"""PNG options without filters, which would take four times as long for screens and save nothing."""


class Frames:
    """Captures one screen.

    Args:
        folder: folder that Xvfb gets as `-fbdir`.
    """

    def __init__(self, folder: Path) -> None:
        with (folder / "Xvfb_screen0").open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header = struct.unpack(">25I", self._map[:100])
        self._at = header[0] + COLOUR_BYTES * header[19]
        self.width, self.height, self._line = header[4], header[5], header[12]
        self._encoded: tuple[bytes, bytes] = (b"", b"")

    def grab(self) -> bytes:
        """Returns the current pixels, row by row, with four bytes each: blue, green, red and an unused one."""
        return self._map[self._at : self._at + self._line * self.height]

    def png(self, frame: bytes) -> bytes:
        """Encodes a frame as PNG; an unchanged frame is not encoded again."""
        if frame != self._encoded[0]:
            self._encoded = (frame, encoded(frame, self.width, self.height, self._line))
        return self._encoded[1]


def encoded(frame: bytes, width: int, height: int, line: int) -> bytes:
    """Encodes a frame with `line` bytes per row as PNG; raises ValueError if this fails."""
    pixels: npt.NDArray[np.uint8] = np.frombuffer(frame, np.uint8).reshape(height, line // 4, 4)[:, :width]
    done, png = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_BGRA2BGR), HOW)
    if not done:
        raise ValueError(f"a frame of {width} x {height} cannot be written as PNG")
    return png.tobytes()


APART_S = 0.008
"""Seconds between two checks."""
BUSY = ("R", "D")
"""States of a process that runs, waits for the processor, or waits for a disk."""


def descendants(pid: int) -> list[int]:
    """Lists all descendants of a process."""
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
    """Returns whether any descendant of `pid` is busy, and each descendant's processor time so far."""
    busy, spent = False, dict[int, str]()
    for one in descendants(pid):
        try:
            state = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0]
            spent[one] = Path(f"/proc/{one}/schedstat").read_text().split()[0]
        except (OSError, IndexError):
            continue  # it has ended
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
