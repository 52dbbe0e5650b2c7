"""Searches for the mixture, the number of groups of each degree, that ends first in one micro-batch.

There are 27,338 mixtures of 128 ranks and 3 * 10^8 of 1,024, so they are not enumerated. The search starts from the
mixtures of one degree. It repeatedly changes the most promising mixtures, by replacing some groups of a degree with
groups of another. A mixture's time is estimated by distributing the sequences' tokens continuously over its groups.
Finally, the most promising mixtures are filled. Mixtures of one degree are always filled, so the result is never worse
than the best of them. The module is deterministic and does not import torch.
"""

import heapq
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import ClusterCost, Floats, GroupedMicroBatch, Ints
from learning.planning.sequence_fill import Counts, Filled, Load, evened, fill, load_of, micro_batch

FILLS = 128
"""Number of mixtures that are filled for one micro-batch, in addition to the mixtures of one degree."""
HALVINGS = 6
"""Steps of the bisection for a mixture's estimated time."""
BEAM = 4
"""Number of mixtures that are changed in each round of the search."""
ROUNDS = 24
"""Maximum number of rounds."""
LATER = 1.5
"""Factor over the fastest found time above which a mixture's estimated time excludes it."""


def mixture(lengths: npt.ArrayLike, ranks: int, cost: ClusterCost, fills: int = FILLS) -> GroupedMicroBatch | None:
    """Finds the fastest mixture for these sequences; None if no filled mixture has room for them.

    Args:
        lengths: tokens of the micro-batch's sequences, at least one.
        ranks, cost: the cluster.
        fills: number of mixtures that are filled, in addition to the mixtures of one degree.
    """
    load, order = load_of(lengths, cost)
    found = quickest(load, ranks, fills, far=len(load.degrees))
    return None if found is None else micro_batch(evened(load, refined(load, found, fills)), load, order)


def homogeneous(
    lengths: npt.ArrayLike, ranks: int, cost: ClusterCost, degree: int | None = None
) -> GroupedMicroBatch | None:
    """Fills groups of one degree, either the given degree or the best; None if the sequences fit on no degree."""
    load, order = load_of(lengths, cost)
    found = None
    for _, counts in _same_degree(load, ranks):
        if degree is None or counts[cost.degrees.index(degree)]:
            found = _better(load, counts, found)
    return None if found is None else micro_batch(found, load, order)


def quickest(load: Load, ranks: int, fills: int, found: Filled | None = None, far: int = 1) -> Filled | None:
    """Finds the best mixture of one degree or of the most promising others; returns `found` if no mixture is better.

    Args:
        load: the sequences.
        ranks: number of ranks.
        fills: number of other mixtures that are filled.
        found: a known mixture.
        far: maximum distance of a change, in degrees.
    """
    for least, counts in _same_degree(load, ranks):
        if found is None or least < found.milliseconds:
            found = _better(load, counts, found)
    if fills:
        limit = math.inf if found is None else found.milliseconds
        for counts in _likely(load, ranks, limit, fills, far):
            if load.work.left > 0:
                found = _better(load, counts, found)
    return found


def refined(load: Load, found: Filled, fills: int) -> Filled:
    """Changes the mixture as long as this makes it faster; fills at most `fills` changes."""
    tried = {found.counts}
    while fills > 0 and load.work.left > 0:
        near = [one for one in _changed(found.counts, load.degrees, len(load.degrees)) if one not in tried][:fills]
        fills -= len(near)
        tried.update(near)
        made = found
        for counts in near:
            if load.work.left > 0:
                made = _better(load, counts, made) or made
        if made is found:
            break
        found = made
    return found


def _better(load: Load, counts: Counts, found: Filled | None) -> Filled | None:
    """Fills the mixture; returns `found` if it is not slower."""
    return fill(load, counts, math.inf if found is None else found.milliseconds) or found


def _same_degree(load: Load, ranks: int) -> list[tuple[float, Counts]]:
    """Lists the mixtures of one degree that may have room for the sequences, by increasing lower bound of their time.

    The bound is the larger of the longest sequence's time and an even share of all work.
    """
    groups = ranks // np.array(load.degrees)
    least = load.fixed + np.maximum(load.added[0], load.added.sum(axis=0) / groups)
    least[load.tokens.sum() > np.array(load.room) * groups] = math.inf
    order = [kind for kind in np.argsort(least, kind="stable").tolist() if least[kind] < math.inf]
    return [(float(least[kind]), _only(kind, ranks, load.degrees)) for kind in order]


def _only(kind: int, ranks: int, degrees: Sequence[int]) -> Counts:
    return tuple(ranks // degree if place == kind else 0 for place, degree in enumerate(degrees))


def _likely(load: Load, ranks: int, limit: float, most: int, far: int) -> list[Counts]:
    """Finds mixtures by splitting and merging, the most promising first."""
    pour = _Pour(load, ranks, limit)
    spans: dict[Counts, float] = {}
    fresh = [_only(kind, ranks, load.degrees) for kind in range(len(load.degrees))]
    changed: set[Counts] = set()
    for _ in range(ROUNDS):
        if fresh:
            spans |= zip(fresh, pour.spans(fresh), strict=True)
        best = [one for _, one in heapq.nsmallest(BEAM, zip(spans.values(), spans, strict=True)) if one not in changed]
        if not best:
            break
        changed.update(best)
        fresh = sorted({other for one in best for other in _changed(one, load.degrees, far)} - spans.keys())
    likely = heapq.nsmallest(most, zip(spans.values(), spans, strict=True))
    return [one for span, one in likely if span < math.inf]


def _changed(counts: Counts, degrees: tuple[int, ...], far: int) -> Iterator[Counts]:
    """Yields mixtures with 1, 2, 4, ... groups of a degree changed to another, at most `far` degrees away."""
    for source, had in enumerate(counts):
        for target in range(max(0, source - far), min(len(counts), source + far + 1)):
            used = max(1, degrees[target] // degrees[source])
            while source != target and used <= had:
                other = list(counts)
                other[source] -= used
                other[target] += used * degrees[source] // degrees[target]
                yield tuple(other)
                used *= 2


class _Pour:
    """Estimates the time of mixtures by a continuous distribution: longest sequences and largest groups first.

    The estimate is neither a lower nor an upper bound of the filled time. It is fast, since one bisection covers many
    mixtures.
    """

    def __init__(self, load: Load, ranks: int, limit: float) -> None:
        self._load = load
        fits = np.isfinite(load.added)
        self._missing = (~fits).sum(axis=0).tolist()
        poured = np.zeros((load.added.shape[1], len(load.tokens) + 1))
        np.cumsum(np.where(fits, load.added, 0.0).T, axis=1, out=poured[:, 1:])
        self._poured = poured
        self._shared = float((load.added * np.array(load.degrees)).min(axis=1).sum()) / ranks
        self._limit = LATER * (limit - load.fixed)

    def spans(self, mixtures: Sequence[Counts]) -> list[float]:
        """Estimates the milliseconds of each mixture; infinite if the sequences do not fit below the limit."""
        counts = np.array(mixtures)
        alone = np.where(counts > 0, self._load.added[0], np.inf).min(axis=1)
        low = np.maximum(self._shared, alone)
        high = np.full(len(counts), self._limit) if math.isfinite(self._limit) else 8 * low
        fits = np.isfinite(low) & (low < high)
        low, high = np.where(fits, low, 0.0), np.where(fits, high, 0.0)
        fits &= self._poured_by(high, counts)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            done = self._poured_by(middle, counts)
            low, high = np.where(done, low, middle), np.where(done, middle, high)
        return np.where(fits, self._load.fixed + high, np.inf).tolist()

    def _poured_by(self, time: Floats, counts: Ints) -> npt.NDArray[np.bool_]:
        """Checks whether all sequences fit within these times; (mixtures,)."""
        place = np.zeros(len(counts), dtype=np.int64)
        for kind in reversed(range(counts.shape[1])):
            poured = self._poured[kind]
            reached = poured.searchsorted(poured[place] + time * counts[:, kind], side="right") - 1
            place = np.where(place >= self._missing[kind], np.maximum(place, reached), place)
        return place >= len(self._load.tokens)
