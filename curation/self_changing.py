"""Find screen regions that change on their own, such as a clock.

Rules that check whether an action changed the screen must ignore such regions. A self-changing region changes in idle
steps, which wait or end the trajectory, and also in all other steps. In contrast, an awaited change occurs once, and an
action's effect does not occur in idle steps. Pictures are compared outside these regions, pixel by pixel.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from common.picture import rgb_of

CELLS = 32
"""Number of cells of a screen in each direction; each cell as a whole is self-changing or not."""
LEAST_SEEN = 2
"""Minimum number of idle steps, since a single one may show a late effect of the previous action."""
LEAST_SHARE = 0.8
"""Minimum share of steps in which a self-changing cell changes, among idle steps on an otherwise unchanged screen, and
among other steps."""
MOST = 0.05
"""Maximum share of changed cells of an idle step; more changes come from a page that loads or continues."""

Pair = tuple[bytes, bytes]
Cells = np.ndarray
"""A selection of cells, as booleans of shape (CELLS, CELLS), rows first."""


def self_changing_cells(idle: Sequence[Pair], acted: Sequence[Pair]) -> Cells | None:
    """Return the self-changing cells and their neighbours; None if there are none.

    Args:
        idle: PNGs before and after steps without an action; the same bytes if nothing changed.
        acted: the same for steps with an action.
    """
    still = [cells for pair in idle if (cells := _changed(*pair)) is not None and cells.mean() <= MOST]
    moved = [cells for pair in acted if (cells := _changed(*pair)) is not None]
    if len(still) < LEAST_SEEN or not moved:
        return None
    shares = [np.mean([_grown(cells) for cells in part], axis=0) for part in (still, moved)]
    found = np.minimum(*shares) >= LEAST_SHARE
    return found if found.any() else None


class Still:
    """Screens of one task without their self-changing regions.

    Args:
        cells: the cells of these regions.
    """

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._first: dict[str, str] = {}
        self._same: dict[str, str] = {}

    def without(self, png: bytes) -> Image.Image:
        """Return a screen with its most frequent colour in these cells, as on a blank page."""
        pixels = _pixels(png).copy()
        colours, counts = np.unique(pixels[::4, ::4].reshape(-1, 3), axis=0, return_counts=True)
        rows, columns = _cells(pixels.shape[0]), _cells(pixels.shape[1])
        pixels[self._cells[rows][:, columns]] = colours[counts.argmax()]
        return Image.fromarray(pixels)

    def first_like(self, name: str, screen: Image.Image) -> str:
        """Return the sha256 of the first requested screen that equals this one pixel by pixel."""
        if name not in self._same:
            digest = hashlib.sha256(f"{screen.size}".encode() + screen.tobytes()).hexdigest()
            self._same[name] = self._first.setdefault(digest, name)
        return self._same[name]


def _changed(before: bytes, after: bytes) -> Cells | None:
    """Return the cells in which any pixel differs; None for screens of two sizes."""
    if before == after:
        return np.zeros((CELLS, CELLS), np.bool_)
    one, two = _pixels(before), _pixels(after)
    if one.shape != two.shape:
        return None
    found = np.zeros((CELLS, CELLS), np.bool_)
    rows, columns = np.nonzero((one != two).any(-1))
    found[_cells(one.shape[0])[rows], _cells(one.shape[1])[columns]] = True
    return found


def _grown(cells: Cells) -> Cells:
    """Add neighbouring cells, since a self-changing region is usually a line of text, whose next digit changes as
    well."""
    padded = np.pad(cells, ((1, 1), (2, 2)))
    shifts = [(row, column) for row in range(3) for column in range(5)]
    return np.logical_or.reduce([padded[row : row + CELLS, column : column + CELLS] for row, column in shifts])


def _pixels(png: bytes) -> np.ndarray:
    return np.asarray(rgb_of(png))


def _cells(size: int) -> np.ndarray:
    """Return the cell of each pixel along one side."""
    return np.arange(size) * CELLS // size
