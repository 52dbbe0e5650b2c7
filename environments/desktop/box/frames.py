"""Read the X server's screen from the file that it draws into, and encode it as PNG.

Xvfb keeps its screen in a memory-mapped file in the X window dump format (`-fbdir`), so a capture is a copy of memory.
The file includes the pointer, unlike the answer of `XGetImage`.
"""

import mmap
import struct
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
