"""What changes on a screen all the time, whatever is done or not: a clock, for one.

Rules that ask whether an action changed the screen learn nothing from what changes without one. It shows in idle
steps, those that wait or end the trajectory, and in all others as well: what was waited for comes once, and what an
action does stays away while nothing is done. Pictures are compared outside those places, and there pixel by pixel.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from schemas.picture import rgb_of

CELLS = 32
"""Of a screen in each direction: what is restless is known by the cell."""
LEAST_SEEN = 2
"""Idle steps from which on anything is known: one may show the late work of the action before it."""
LEAST_SHARE = 0.8
"""Of the idle steps in which the rest of the screen held, and of the others, the share that a cell must change in."""
MOST = 0.05
"""Of the cells: an idle step that changes more shows a page that loads or moves on, not one that stands still."""

Pair = tuple[bytes, bytes]
Cells = np.ndarray
"""Which cells, as booleans of shape (CELLS, CELLS), rows first."""


def self_changing_cells(idle: Sequence[Pair], acted: Sequence[Pair]) -> Cells | None:
    """The cells that change all the time, and those near them; None where none does.

    Args:
        idle: PNGs before and after steps in which nothing was done; the same bytes where nothing changed.
        acted: the same of steps in which something was.
    """
    still = [cells for pair in idle if (cells := _changed(*pair)) is not None and cells.mean() <= MOST]
    moved = [cells for pair in acted if (cells := _changed(*pair)) is not None]
    if len(still) < LEAST_SEEN or not moved:
        return None
    shares = [np.mean([_grown(cells) for cells in part], axis=0) for part in (still, moved)]
    found = np.minimum(*shares) >= LEAST_SHARE
    return found if found.any() else None


class Still:
    """Screens of one task without what changes on them by itself.

    Args:
        restless: the cells that do.
    """

    def __init__(self, restless: Cells) -> None:
        self._restless = restless
        self._first: dict[str, str] = {}
        self._same: dict[str, str] = {}

    def without(self, png: bytes) -> Image.Image:
        """A screen with its commonest colour in the restless cells, where a blank page has it, too."""
        pixels = _pixels(png).copy()
        colours, counts = np.unique(pixels[::4, ::4].reshape(-1, 3), axis=0, return_counts=True)
        rows, columns = _cells(pixels.shape[0]), _cells(pixels.shape[1])
        pixels[self._restless[rows][:, columns]] = colours[counts.argmax()]
        return Image.fromarray(pixels)

    def first_like(self, name: str, screen: Image.Image) -> str:
        """The sha256 of the first screen, of all asked for so far, that is like this one pixel by pixel."""
        if name not in self._same:
            digest = hashlib.sha256(f"{screen.size}".encode() + screen.tobytes()).hexdigest()
            self._same[name] = self._first.setdefault(digest, name)
        return self._same[name]


def _changed(before: bytes, after: bytes) -> Cells | None:
    """The cells in which any pixel differs; None for screens of two sizes."""
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
    """These cells and those near them: what ticks is mostly a line of text, and its next digit is as restless."""
    padded = np.pad(cells, ((1, 1), (2, 2)))
    shifts = [(row, column) for row in range(3) for column in range(5)]
    return np.logical_or.reduce([padded[row : row + CELLS, column : column + CELLS] for row, column in shifts])


def _pixels(png: bytes) -> np.ndarray:
    return np.asarray(rgb_of(png))


def _cells(size: int) -> np.ndarray:
    """The cell of each pixel along one side."""
    return np.arange(size) * CELLS // size
