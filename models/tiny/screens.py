"""Converts screenshots to network input: lays them unscaled on a white canvas of whole patches and cuts it into
patches."""

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from common.picture import rgb_of
from models.tiny.build import DEVIATION, MEAN
from models.tiny.network import Grid

Pixels = np.ndarray
"""One screenshot, (height, width, 3), uint8."""
HELD_BYTES = 16 * 2**20
"""Maximum bytes of decoded screenshots per process: 165 pages of MiniWoB++. Decoding takes 0.4 ms per page."""


def pixels_of(png: bytes) -> Pixels:
    """Decodes a screenshot.

    Raises:
        OSError: the bytes are no image.
    """
    return np.asarray(rgb_of(png))


class PixelCache:
    """Cache of decoded screenshots by their sha256, which keeps the most recently used.

    Args:
        pngs: PNG files by sha256.
        most: maximum bytes of all screenshots together; a single one may take more.
    """

    def __init__(self, pngs: Mapping[str, bytes], most: int = HELD_BYTES) -> None:
        self._pngs, self._most, self._bytes = pngs, most, 0
        self._held: OrderedDict[str, Pixels] = OrderedDict()

    def __call__(self, digest: str) -> Pixels:
        """Returns a screenshot's pixels; raises KeyError for an unknown screenshot."""
        if digest not in self._held:
            self._held[digest] = pixels_of(self._pngs[digest])
            self._bytes += self._held[digest].nbytes
        self._held.move_to_end(digest)
        while self._bytes > self._most and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes
        return self._held[digest]


def grid_of(height: int, width: int, patch: int, merge: int) -> Grid:
    """Finds the smallest canvas, in patches, that holds a screen of this size in pixels."""
    block = patch * merge
    return Grid(-(-height // block) * merge, -(-width // block) * merge)


def canvas_of(pixels: Pixels, grid: Grid, patch: int, down: int = 0, right: int = 0) -> Pixels:
    """Lays the screen on a white canvas, moved by `down` and `right` pixels (negative: up and left)."""
    canvas = np.full((grid.rows * patch, grid.columns * patch, 3), 255, dtype=np.uint8)
    height = min(pixels.shape[0] - max(-down, 0), canvas.shape[0] - max(down, 0))
    width = min(pixels.shape[1] - max(-right, 0), canvas.shape[1] - max(right, 0))
    from_top, from_left = max(-down, 0), max(-right, 0)
    to_top, to_left = max(down, 0), max(right, 0)
    shown = pixels[from_top : from_top + height, from_left : from_left + width]
    canvas[to_top : to_top + height, to_left : to_left + width] = shown
    return canvas


def patches_of(canvases: list[Pixels], patch: int, merge: int, dtype: torch.dtype) -> Tensor:
    """Cuts canvases of one size into (B, patches, 3 * patch ** 2): blocks of merge x merge, white as 0."""
    stack = np.stack(canvases)
    batch, height, width, _ = stack.shape
    block = patch * merge
    cut = stack.reshape(batch, height // block, merge, patch, width // block, merge, patch, 3)
    cut = cut.transpose(0, 1, 4, 2, 5, 7, 3, 6).reshape(batch, -1, 3 * patch * patch)
    return torch.from_numpy(cut).to(dtype).sub_(255 * MEAN).mul_(1 / (255 * DEVIATION))
