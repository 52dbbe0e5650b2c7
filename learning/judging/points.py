"""Samples a bounded number of screen points with their elements for the judge's reader, uniformly."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.judges.local.features import CROP, Array, crop_of, grams_of, grey_of

MOST = 65_536
"""Maximum number of points, which take 168 MB of pixels on disk."""


@dataclass(frozen=True, slots=True)
class LabelledPoint:
    """A point of a screen, in fractions of the screen, and the element at the point."""

    png: bytes
    x: float
    y: float
    name: str
    kind: str


class Points:
    """Keeps at most `most` of the added points, each with equal probability (Vitter's algorithm R, 1985).

    Args:
        file: a new file for the pixels; it must exist while points are drawn.
        chance: random numbers that decide which points are kept.
        most: maximum number of points.
    """

    def __init__(self, file: Path, chance: random.Random, most: int = MOST) -> None:
        self._chance, self._most, self._added = chance, most, 0
        self._crops: Array = np.memmap(file, np.uint8, "w+", shape=(most, *CROP))
        self._names: list[str] = []
        self._kinds: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    @property
    def kinds(self) -> list[str]:
        """Lists the kinds of elements of the kept points, and the empty kind, in order."""
        return sorted({*self._kinds, ""})

    def add(self, reading: LabelledPoint) -> None:
        """Adds a point, which is kept, replaces another point, or is dropped."""
        at = self._added if self._added < self._most else self._chance.randrange(self._added + 1)
        self._added += 1
        if at >= self._most:
            return
        if at == len(self._names):
            self._names.append("")
            self._kinds.append("")
        self._crops[at] = crop_of(grey_of(reading.png), reading.x, reading.y)
        self._names[at], self._kinds[at] = reading.name.strip().lower(), reading.kind

    def draw(
        self, count: int, order: np.random.Generator, kinds: Sequence[str]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draws `count` points as arguments of `network.reading_loss`."""
        at = order.integers(0, len(self), count)
        names = [self._names[index] for index in at]
        different = sorted({name for name in names if name}) or [""]
        places = {name: place for place, name in enumerate(different) if name}
        which = torch.tensor([places.get(name, -1) for name in names])
        grams = torch.from_numpy(np.stack([grams_of(name) for name in different]))
        shown = torch.tensor([kinds.index(self._kinds[index]) for index in at])
        return torch.from_numpy(np.asarray(self._crops[at])), grams, which, shown
