"""What a picture looks like, in a few hundred bits: near-identical pictures differ in few of them."""

import io
from itertools import pairwise

from PIL import Image

CELLS = 16
"""Cells of the picture in each direction that are compared with their neighbours."""
CONTRAST = 8
"""Of 255 levels of grey: less is noise, so that a plain surface is the same whatever the encoder did to it."""
BITS = 2 * CELLS * CELLS


def difference_hash(png: bytes) -> str:
    """The 512-bit difference hash of a PNG, in hex: a bit per pair of neighbouring cells, first of 17 x 16 from left to
    right, then of 16 x 17 from top to bottom, set where the second is brighter by more than `CONTRAST`.

    Noise, another encoder or a cursor flip up to 8 bits of a MiniWoB++ page; another text or a button moved by a few
    pixels flips tens.
    """
    return f"{edges(Image.open(io.BytesIO(png))):0{BITS // 4}x}"


def edges(picture: Image.Image) -> int:
    """The bits of a picture's difference hash."""
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
    """The bits of a difference hash; None for one of another kind, such as earlier versions stored."""
    return int(phash, 16) if len(phash) == BITS // 4 else None
