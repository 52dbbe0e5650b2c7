"""Puts samples that begin alike together, since a rank computes their common opening only once.

Samples with equal openings are a unit. Together they take the opening once, and the rest of each sample. Whole units
need the fewest micro-batches. But a unit may exceed a rank's limit, or leave other ranks without work. So the planner
(`learning.planning.step_plan`) compares plans of units that are cut ever finer; each part takes the opening again. The
module does not import torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from learning.planning.balance import Ints, loads, longest_first
from schemas.failure import PlanError


@dataclass(frozen=True, slots=True)
class Amounts:
    """An amount of each sample, such as its cost; samples of a unit in one place have that of their opening once."""

    whole: Ints
    """(n,) amount of each sample alone."""
    opening: Ints
    """(n,) amount of each sample's opening, equal within a unit; 0 for a sample that shares none."""
    units: Ints
    """(n,) number of each sample's unit, from 0."""

    @property
    def rest(self) -> Ints:
        """Computes the amount of each sample behind its opening, (n,)."""
        return self.whole - self.opening

    def sums(self, places: Ints, number: int) -> Ints:
        """Sums the amounts in each place, (number,).

        Args:
            places: (n,) place of each sample.
            number: number of places.
        """
        found = loads(self.rest, places, number)
        first = np.unique(places * len(self.units) + self.units, return_index=True)[1]
        np.add.at(found, places[first], self.opening[first])
        return found


def cuts(costs: Amounts, sizes: Amounts, most: int | None) -> Iterator[Ints]:
    """Yields ever finer cuts of the units into parts, as the number of each sample's part, (n,), from 0.

    The first cut has whole units, unless a unit exceeds the limit. The last one has single samples. In between, the
    number of a unit's parts grows with its cost, and parts of a unit cost the same.

    Args:
        costs: cost of each sample.
        sizes: size of each sample; none exceeds the limit.
        most: maximum size of a part; None for no limit.
    """
    samples = len(costs.units)
    units = np.split(np.argsort(costs.units, kind="stable"), np.bincount(costs.units).cumsum()[:-1])
    work = costs.sums(costs.units, len(units)).tolist()
    known = -1
    for number in (size for power in count() for size in (2**power, 3 * 2**power // 2)):
        parts, end = np.empty(samples, dtype=np.int64), 0
        for unit, cost in zip(units, work, strict=True):
            found = _cut(unit, -(-cost * number // max(1, *work)), costs, sizes, most)
            parts[unit] = end + found
            end += int(found.max(initial=-1)) + 1
        if end > known:
            yield parts
        known = end
        if known == samples:
            return


def _cut(unit: Ints, number: int, costs: Amounts, sizes: Amounts, most: int | None) -> Ints:
    """Cuts a unit into this number of parts of equal cost, or into more if these exceed the limit; (samples,) parts."""
    rest, held = costs.rest[unit], sizes.rest[unit]
    room = None if most is None else most - int(sizes.opening[unit[0]])
    if room is not None:
        number = max(number, -(-int(held.sum()) // room))
    number = max(1, min(number, len(unit)))
    while True:
        try:
            found = longest_first(rest, number, held, room)
        except PlanError:
            number += 1
            continue
        return np.unique(found, return_inverse=True)[1]
