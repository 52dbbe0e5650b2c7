"""Computes the numbers of a LeRobot data set's `meta/stats.json` while its frames are written."""

import math
from collections.abc import Mapping
from typing import Any

from PIL import ImageStat

from common.picture import rgb_of
from curation.converters.exchanged import Picture
from curation.converters.files import items_of


class Stats:
    """Running minimum, maximum, mean and standard deviation of features.

    Args:
        screen: the feature that is a picture; its numbers are per colour, in [0, 1].
    """

    def __init__(self, screen: str) -> None:
        self._screen = screen
        self._sums: dict[str, list[list[float]]] = {}
        self._count: dict[str, int] = {}

    def add(self, row: Mapping[str, Any], screen: Picture) -> None:
        """Adds a frame: its numbers and lists of numbers by feature, and its screen."""
        for name, given in row.items():
            values: list[float] = items_of(given) or [float(given)]
            self._add(name, [(one, one, one, one * one) for one in values])
        self._add(self._screen, _colours(screen))

    def _add(self, name: str, values: list[tuple[float, float, float, float]]) -> None:
        held = self._sums.setdefault(name, [[math.inf, -math.inf, 0.0, 0.0] for _ in values])
        for sums, (low, high, mean, square) in zip(held, values, strict=True):
            sums[:] = [min(sums[0], low), max(sums[1], high), sums[2] + mean, sums[3] + square]
        self._count[name] = self._count.get(name, 0) + 1

    def whole(self) -> dict[str, Any]:
        """Returns all statistics."""
        return {name: self._of(name, rows) for name, rows in self._sums.items()}

    def _of(self, name: str, rows: list[list[float]]) -> dict[str, Any]:
        n = self._count[name]
        means = [row[2] / n for row in rows]
        deviations = [math.sqrt(max(0.0, row[3] / n - mean * mean)) for row, mean in zip(rows, means, strict=True)]
        columns = {"min": [row[0] for row in rows], "max": [row[1] for row in rows], "mean": means, "std": deviations}
        if name == self._screen:
            columns = {key: [[[one]] for one in values] for key, values in columns.items()}
        return {**columns, "count": [n]}


def _colours(screen: Picture) -> list[tuple[float, float, float, float]]:
    """Computes minimum, maximum, mean and mean of squares of each colour of a picture, in [0, 1]."""
    found = ImageStat.Stat(rgb_of(screen.png))
    each = zip(found.extrema, found.mean, found.sum2, found.count, strict=True)
    return [(low / 255, high / 255, mean / 255, square / n / 255**2) for (low, high), mean, square, n in each]
