"""Groups of different degree for one micro-batch: every partition of the ranks, filled longest first.

A partition says how many groups there are of each degree; longest-first filling says who goes where. Partitions are
tried in the order of a lower bound of their time, many at once as arrays, until none that is left can be quicker. The
homogeneous ones are among them, so the result is never worse than the best of those. Deterministic; no torch here.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import ClusterCost, Floats, Group, Ints, MicroBatch

BLOCK = 32
"""Partitions filled at once."""
HALVINGS = 8
"""Steps of the bisection for a partition's likely time."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """All partitions of the ranks, as arrays."""

    counts: Ints
    """(shapes, degrees) groups of each degree."""
    kinds: Ints
    """(shapes, most groups) index of each group's degree, largest first; -1 where there is no group."""
    degrees: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Load:
    """Sequences of a micro-batch, longest first."""

    tokens: Ints
    added: Floats
    """(sequences, degrees) milliseconds on a group of each degree."""
    fits: npt.NDArray[np.bool_]
    """(sequences, degrees)."""
    room: Ints
    """(degrees,) tokens that a group holds."""
    fixed: float


@cache
def partitions(ranks: int, degrees: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Every way to write `ranks` as a sum of the degrees, each descending: 10, 36, 202, 1,828 for 8, 16, 32, 64."""
    found: list[tuple[int, ...]] = []

    def extend(left: int, allowed: tuple[int, ...], so_far: tuple[int, ...]) -> None:
        if left == 0:
            found.append(so_far)
        for place, degree in enumerate(allowed):
            if degree <= left:
                extend(left - degree, allowed[place:], (*so_far, degree))

    extend(ranks, tuple(sorted(degrees, reverse=True)), ())
    return tuple(found)


@cache
def shapes_of(ranks: int, degrees: tuple[int, ...]) -> Shapes:
    """The partitions as arrays."""
    found = partitions(ranks, degrees)
    counts = np.array([[shape.count(degree) for degree in degrees] for shape in found], dtype=np.int64)
    kinds = np.full((len(found), max(map(len, found))), -1, dtype=np.int64)
    for row, shape in enumerate(found):
        kinds[row, : len(shape)] = [degrees.index(degree) for degree in shape]
    return Shapes(counts.reshape(len(found), len(degrees)), kinds, degrees)


def enumerate_and_fill(
    lengths: npt.ArrayLike, ranks: int, cost: ClusterCost, slack: float = 0.0, most: int | None = None
) -> MicroBatch | None:
    """The quickest of all partitions of the ranks, each filled longest first; None if none can take the sequences.

    A sequence goes to the group where it would end first, among those with room. A group that would stay empty takes
    no part: a partition with one is passed over, since an idle rank would miss the step's collectives.

    Args:
        lengths: tokens of the micro-batch's sequences.
        ranks, cost: the cluster.
        slack: partitions that cannot be quicker than the best found by more than this share are left out.
        most: how many partitions of several degrees are filled, those with the least bounds; all if None.
    """
    shapes = shapes_of(ranks, cost.degrees)
    return _quickest(lengths, shapes, cost, slack, most)


def homogeneous(lengths: npt.ArrayLike, ranks: int, cost: ClusterCost, degree: int | None = None) -> MicroBatch | None:
    """Groups of one degree, the given one or the best; None if the sequences fit on none."""
    shapes = shapes_of(ranks, cost.degrees)
    alone = (shapes.counts > 0).sum(axis=1) == 1
    if degree is not None:
        alone &= shapes.counts[:, cost.degrees.index(degree)] > 0
    return _quickest(lengths, Shapes(shapes.counts[alone], shapes.kinds[alone], shapes.degrees), cost)


def _quickest(
    lengths: npt.ArrayLike, shapes: Shapes, cost: ClusterCost, slack: float = 0.0, most: int | None = None
) -> MicroBatch | None:
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-long, kind="stable")
    load = _load(long[order], cost)
    enough = shapes.counts.sum(axis=1) <= len(long)
    alone = (shapes.counts > 0).sum(axis=1) == 1
    best, limit = _better(load, shapes, np.flatnonzero(enough & alone), None, math.inf)
    mixed = np.flatnonzero(enough & ~alone)
    some = Shapes(shapes.counts[mixed], shapes.kinds[mixed], shapes.degrees)
    bounds = least_spans(load, some, limit)
    guesses = np.maximum(bounds, likely_spans(load, some, bounds, limit))
    left = np.argsort(guesses, kind="stable")[: int((bounds < math.inf).sum()) if most is None else most]
    while len(left := left[bounds[left] < limit * (1 - slack)]):
        best, limit = _better(load, shapes, mixed[left[:BLOCK]], best, limit)
        left = left[BLOCK:]
    return None if best is None else _micro_batch(shapes, best, order, limit)


def _better(
    load: _Load, shapes: Shapes, rows: Ints, best: tuple[int, Ints] | None, limit: float
) -> tuple[tuple[int, Ints] | None, float]:
    """The best shape and its time after these have been filled too."""
    found = _fill(load, shapes.kinds[rows], limit) if len(rows) else None
    return (best, limit) if found is None else ((int(rows[found[0]]), found[1]), found[2])


def _load(long: Ints, cost: ClusterCost) -> _Load:
    room = np.array([cost.capacity(degree) for degree in cost.degrees], dtype=np.int64)
    added = np.stack([cost.milliseconds(long, degree) for degree in cost.degrees], axis=1)
    return _Load(long, added, long[:, None] <= room, room, cost.fixed)


def least_spans(load: _Load, shapes: Shapes, limit: float) -> Floats:
    """A lower bound of every shape's time, infinite where it cannot stay below the limit; (shapes,).

    No group ends before its longest sequence alone would. And the sequences that need a degree or more (for memory, or
    to end in time) do no less work than each on its cheapest degree, shared evenly by the ranks of such groups.
    """
    degrees = np.array(shapes.degrees)
    usable = load.fits & (load.added + load.fixed < limit)
    quick = np.where(usable, load.added, np.inf)
    work = quick * degrees
    need = np.where(usable, np.arange(len(degrees)), len(degrees))
    ranks = np.cumsum((shapes.counts * degrees)[:, ::-1], axis=1)[:, ::-1]
    held, which = np.unique(shapes.counts > 0, axis=0, return_inverse=True)
    sides = np.zeros((len(held), len(degrees) + 1))
    for row, present in enumerate(held):
        longest = quick[:, present].min(axis=1).max()
        sides[row, -1] = longest
        if np.isfinite(longest):
            least = work[:, present].min(axis=1)
            per_need = np.bincount(need[:, present].min(axis=1), weights=least, minlength=len(degrees))
            sides[row, :-1] = np.cumsum(per_need[: len(degrees)][::-1])[::-1]
    sides = sides[which.reshape(-1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = np.where(sides[:, :-1] > 0, sides[:, :-1] / ranks, 0.0)
    return load.fixed + np.maximum(sides[:, -1], shared.max(axis=1))


def likely_spans(load: _Load, shapes: Shapes, bounds: Floats, limit: float) -> Floats:
    """About how long every shape takes: sequences poured, longest first, into the largest groups first; (shapes,).

    Sequences are poured like water, so it is quick, and neither a lower nor an upper bound. Infinite where they do not
    fit below the limit (four times the bound if there is none).
    """
    degrees = np.array(shapes.degrees)
    missing = (~load.fits).sum(axis=0)
    poured = np.zeros((len(load.tokens) + 1, len(degrees)))
    np.cumsum(np.where(load.fits, load.added, 0.0) * degrees, axis=0, out=poured[1:])
    low = bounds - load.fixed
    high = np.full_like(low, limit - load.fixed) if math.isfinite(limit) else 4 * low
    low, high = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(low), high, 0.0)
    fits = np.zeros(len(low), dtype=bool)
    for halving in range(HALVINGS):
        middle = high if halving == 0 else (low + high) / 2
        place = np.zeros(len(low), dtype=np.int64)
        for kind in reversed(range(len(degrees))):
            budget = poured[place, kind] + middle * shapes.counts[:, kind] * degrees[kind]
            reached = np.searchsorted(poured[:, kind], budget, side="right") - 1
            place = np.where(place >= missing[kind], np.maximum(place, reached), place)
        done = place == len(load.tokens)
        fits |= done
        low, high = np.where(done, low, middle), np.where(done, middle, high)
    return np.where(fits, load.fixed + high, np.inf)


def _fill(load: _Load, kinds: Ints, limit: float) -> tuple[int, Ints, float] | None:
    """Fills shapes side by side: the quickest one's row, the group of every sequence, its time, if below the limit."""
    kinds = kinds[:, : int((kinds >= 0).sum(axis=1).max())]
    real = kinds >= 0
    ends = np.where(real, load.fixed, np.inf)
    room = np.where(real, load.room[kinds], -1)
    empty = real.copy()
    chosen = np.empty((len(load.tokens), len(kinds)), dtype=np.int16)
    alive = rows = np.arange(len(kinds))
    for step, length in enumerate(load.tokens):
        would = ends + load.added[step][kinds]
        would[room < length] = np.inf
        place = would.argmin(axis=1)
        end = would[rows, place]
        ends[rows, place] = end
        room[rows, place] -= length
        empty[rows, place] = False
        chosen[step, alive] = place
        kept = end < limit
        if not kept.all():
            alive, ends, room, kinds, empty = alive[kept], ends[kept], room[kept], kinds[kept], empty[kept]
            rows = np.arange(len(alive))
            if not len(alive):
                return None
    spans = np.where(np.isfinite(ends), ends, 0.0).max(axis=1)
    spans[empty.any(axis=1)] = np.inf
    best = int(spans.argmin())
    if not spans[best] < limit:
        return None
    return int(alive[best]), chosen[:, alive[best]].astype(np.int64), float(spans[best])


def _micro_batch(shapes: Shapes, best: tuple[int, Ints], order: Ints, milliseconds: float) -> MicroBatch:
    row, places = best
    groups, first = [], 0
    for place, kind in enumerate(shapes.kinds[row]):
        if kind >= 0:
            members = tuple(int(order[index]) for index in np.flatnonzero(places == place))
            groups.append(Group(shapes.degrees[kind], first, members))
            first += shapes.degrees[kind]
    return MicroBatch(tuple(groups), milliseconds)
