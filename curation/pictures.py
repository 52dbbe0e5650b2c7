"""Reduce a picture to a few hundred bits, so that near-identical pictures differ in few of them."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from PIL import Image

from common.picture import rgb_of

CELLS = 16
"""Number of compared cells in each direction."""
CONTRAST = 8
"""Minimum difference in grey levels (of 255); smaller differences are noise, so that a plain surface is equal with any
encoder."""
BITS = 2 * CELLS * CELLS
FINE = 12
"""Side of a cell in pixels for the finer hash of a large picture: about the cell size of the difference hash of a
MiniWoB++ page, so that a cursor or a line of text flips the same number of bits on every screen."""
SHADE = 16
"""Minimum difference of two cells' mean brightness or colour (of 255) that is more than noise. A JPEG moves the colour
of thin letters by up to 13."""
HUES = 2
"""Maximum number of cells whose colour differs between equal pictures. A grey cursor over a coloured button changes
one or two, and a coloured square of 20 pixels at least four."""


class Detail(NamedTuple):
    """A difference hash whose cells do not grow with the picture, and the cells' colours."""

    size: tuple[int, int]
    """Size of the picture, in pixels."""
    bits: int
    spread: int
    """Number of cells along the longer side of the smallest box that holds all edges; 0 for a plain picture."""
    colours: bytes = b""
    """Mean brightness and colour of each cell, as YCbCr; not compared if a picture has none."""

    @property
    def finer(self) -> bool:
        """Whether the cells are smaller than the cells of the 512-bit hash, in both directions."""
        return min(self.size) // FINE > CELLS

    def like(self, other: "Detail", most_bits: int) -> bool:
        """Whether two pictures of one size differ in at most `most_bits` bits, and are equal in colour.

        The bits are edges, which two colours on one background share. The brightness of at most `most_bits` cells may
        differ, and the colour of at most `HUES`.
        """
        if self.size != other.size or (self.bits ^ other.bits).bit_count() > most_bits:
            return False
        if self.colours == other.colours or not (self.colours and other.colours):
            return True
        one, two = (np.frombuffer(each.colours, np.uint8).reshape(-1, 3).astype(np.int16) for each in (self, other))
        light, *hue = (np.abs(one - two) > SHADE).T
        return int(light.sum()) <= most_bits and int((hue[0] | hue[1]).sum()) <= HUES


def difference_hash(png: bytes) -> str:
    """Return the 512-bit difference hash of a PNG, in hex, with a bit per pair of neighbouring cells.

    The bits are first of 17 x 16 cells from left to right, then of 16 x 17 from top to bottom. A bit is set where the
    second cell is brighter by more than `CONTRAST`. Noise, another encoder or a cursor flip up to 8 bits of a MiniWoB++
    page; another text or a button moved by a few pixels flips tens of bits.
    """
    return f"{edges(rgb_of(png)):0{BITS // 4}x}"


def edges(picture: Image.Image) -> int:
    """Return the bits of a picture's difference hash."""
    grey = picture.convert("L")
    across = grey.resize((CELLS + 1, CELLS), Image.Resampling.BOX).tobytes()
    down = grey.resize((CELLS, CELLS + 1), Image.Resampling.BOX).transpose(Image.Transpose.TRANSPOSE).tobytes()
    bits = 0
    for cells in (across, down):
        for row in range(CELLS):
            line = cells[row * (CELLS + 1) : (row + 1) * (CELLS + 1)]
            for left, right in pairwise(line):
                bits = bits << 1 | (right > left + CONTRAST)
    return bits


def bits_of(phash: str) -> int | None:
    """Return the bits of a difference hash; None for a hash of another kind, such as one by an earlier version."""
    return int(phash, 16) if len(phash) == BITS // 4 else None


def detail(picture: Image.Image) -> Detail:
    """Return a picture's difference hash with cells of `FINE` pixels, or of a 16th of its side if this is less.

    On large screens the 512 bits show neither lines of text nor thin frames, and on no screen colours.
    """
    grey = picture.convert("L")
    across, down = (max(CELLS, side // FINE) for side in grey.size)
    found: list[np.ndarray] = []
    spread = 0
    for axis, cells in ((1, (across + 1, down)), (0, (across, down + 1))):
        shades = np.asarray(grey.resize(cells, Image.Resampling.BOX), np.int16)
        steps = np.diff(shades, axis=axis)
        found.append((steps > CONTRAST).ravel())
        rows, columns = np.nonzero(np.abs(steps) > CONTRAST)
        spread = max([spread, *(int(np.ptp(places)) + 1 for places in (rows, columns) if places.size)])
    bits = int.from_bytes(np.packbits(np.concatenate(found)).tobytes(), "big")
    small = picture.convert("RGB").resize((across, down), Image.Resampling.BOX, reducing_gap=2)
    return Detail(grey.size, bits, spread, small.convert("YCbCr").tobytes())
