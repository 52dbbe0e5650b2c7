"""Searches for the mixture, the number of groups of each degree, that ends first in one micro-batch.

The groups of a mixture are filled longest sequence first; then their end times are balanced. A group may stay empty;
its ranks then take part in the step's collectives with a token of padding.

There are 27,338 mixtures of 128 ranks and 3 * 10^8 of 1,024, so they are not enumerated. The search starts from the
mixtures of one degree. It repeatedly changes the most promising mixtures, by replacing some groups of a degree with
groups of another. A mixture's time is estimated by distributing the sequences' tokens continuously over its groups.
Finally, the most promising mixtures are filled. Mixtures of one degree are always filled, so the result is never worse
than the best of them. The module is deterministic and does not import torch.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import ClusterCost, Floats, Group, GroupedMicroBatch, Ints

SWAPS = 200
"""Maximum number of moves and swaps that balance the groups' end times."""

Counts = tuple[int, ...]
"""A mixture: groups of each degree, in the order of the cluster's degrees."""


@dataclass(slots=True)
class PlanningBudget:
    """Remaining work of planning, which is counted and not timed, so that all ranks make the same plan."""

    left: float = math.inf
    """Remaining work, as a number of placed sequences."""


@dataclass(frozen=True, slots=True)
class Load:
    """Sequences of a micro-batch, longest first."""

    tokens: Ints
    added: Floats
    """(sequences, degrees) milliseconds on a group of each degree; infinite if the sequence does not fit."""
    room: tuple[int, ...]
    """Maximum tokens of a group of each degree."""
    degrees: tuple[int, ...]
    fixed: float
    sizes: list[int]
    """`tokens` and `added` as lists."""
    rows: list[list[float]]
    work: PlanningBudget
    """Budget shared by all parts of a batch."""

    def part(self, members: Ints | slice) -> "Load":
        """Selects some of the sequences, longest first."""
        tokens, added = self.tokens[members], self.added[members]
        sizes, rows = tokens.tolist(), added.tolist()
        return Load(tokens, added, self.room, self.degrees, self.fixed, sizes, rows, self.work)


@dataclass(frozen=True, slots=True)
class Filled:
    """A mixture and the group of each sequence."""

    counts: Counts
    places: Ints
    """Group of each sequence; groups are numbered from the largest degree down."""
    milliseconds: float
    """End time of the slowest group."""


def load_of(lengths: npt.ArrayLike, cost: ClusterCost, work: float = math.inf) -> tuple[Load, Ints]:
    """Makes the load of these lengths, and the index of each of its sequences; `work` limits the work of planning
    it."""
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-long, kind="stable")
    room = tuple(cost.capacity(degree) for degree in cost.degrees)
    added = np.stack([cost.milliseconds(long[order], degree) for degree in cost.degrees], axis=1)
    added[long[order][:, None] > np.array(room)] = math.inf
    sizes, rows = long[order].tolist(), added.tolist()
    return Load(long[order], added, room, cost.degrees, cost.fixed, sizes, rows, PlanningBudget(work)), order


def fill(load: Load, counts: Counts, limit: float = math.inf) -> Filled | None:
    """Assigns sequences, longest first, to the group with room that ends first.

    Returns None if a sequence finds no group with room that ends before the limit.
    """
    present = [kind for kind, count in enumerate(counts) if count]
    empty = list(counts)
    firsts = [sum(counts[kind + 1 :]) for kind in range(len(counts))]
    ready: list[list[tuple[float, int]]] = [[] for _ in counts]
    full: list[list[tuple[int, float, int]]] = [[] for _ in counts]
    room: dict[int, int] = {}
    places: list[int] = []
    last = load.fixed
    for tokens, added in zip(load.sizes, load.rows, strict=True):
        soonest, chosen = limit, -1
        for kind in present:
            end = load.fixed
            if not empty[kind]:
                heap, aside = ready[kind], full[kind]
                while aside and -aside[0][0] >= tokens:
                    heapq.heappush(heap, heapq.heappop(aside)[1:])
                while heap and room[heap[0][1]] < tokens:
                    end, place = heapq.heappop(heap)
                    heapq.heappush(aside, (-room[place], end, place))
                end = heap[0][0] if heap else math.inf
            if end + added[kind] < soonest:
                soonest, chosen = end + added[kind], kind
        if chosen < 0:
            load.work.left -= len(places)
            return None
        if empty[chosen]:
            empty[chosen] -= 1
            place = firsts[chosen] + empty[chosen]
            room[place] = load.room[chosen] - tokens
            ready[chosen].append((soonest, place))
            if not empty[chosen]:
                heapq.heapify(ready[chosen])
        else:
            place = ready[chosen][0][1]
            heapq.heapreplace(ready[chosen], (soonest, place))
            room[place] -= tokens
        if soonest > last:
            last = soonest
        places.append(place)
    load.work.left -= len(places)
    return Filled(counts, np.array(places, dtype=np.int64), last)


def evened(load: Load, found: Filled) -> Filled:
    """Improves a filled mixture: moves sequences of the slowest group to other groups, or swaps them.

    A move is a swap with an empty sequence, which every group has. Each swap makes the later end of both groups
    earlier.
    """
    kinds = np.array(kinds_of(found.counts))
    groups, size = len(kinds), len(load.tokens)
    tokens = np.concatenate([load.tokens, np.zeros(groups, dtype=np.int64)])
    added = np.concatenate([load.added, np.zeros((groups, len(load.degrees)))])
    places = np.concatenate([found.places, np.arange(groups)])
    own = added[np.arange(len(places)), kinds[places]]
    ends = load.fixed + np.bincount(places, weights=own, minlength=groups)
    room = np.array(load.room)[kinds] - np.bincount(places, weights=tokens, minlength=groups).astype(np.int64)
    for _ in range(SWAPS):
        last = int(ends.argmax())
        ours = np.flatnonzero(places[:size] == last)
        if not len(ours):
            break
        there = added[ours][:, kinds[places]] - own
        here = added[:, kinds[last]] - own[ours][:, None]
        later = np.maximum(ends[places] + there, ends[last] + here)
        moved = tokens[ours][:, None] - tokens
        later[(moved > room[places]) | (-moved > room[last]) | (places == last)] = math.inf
        at = int(later.argmin())
        if not later.flat[at] < ends[last] * (1 - 1e-9):
            break
        row, take = divmod(at, len(places))
        give, other = int(ours[row]), int(places[take])
        ends[[other, last]] += there[row, take], here[row, take]
        room[[other, last]] += -moved[row, take], moved[row, take]
        places[give] = other
        places[take] = last if take < size else other
        own[[give, take]] = added[give, kinds[other]], added[take, kinds[last]]
    quicker = float(ends.max()) < found.milliseconds
    return Filled(found.counts, places[:size], float(ends.max())) if quicker else found


def micro_batch(found: Filled, load: Load, order: Ints) -> GroupedMicroBatch:
    """Places the groups on consecutive ranks, largest first so that each starts at a multiple of its degree."""
    by_place = np.argsort(found.places, kind="stable")
    kinds = kinds_of(found.counts)
    edges = np.searchsorted(found.places[by_place], np.arange(len(kinds) + 1))
    groups: list[Group] = []
    first = 0
    for place, kind in enumerate(kinds):
        members = order[by_place[edges[place] : edges[place + 1]]]
        groups.append(Group(load.degrees[kind], first, tuple(members.tolist())))
        first += load.degrees[kind]
    return GroupedMicroBatch(tuple(groups), found.milliseconds)


def kinds_of(counts: Counts) -> list[int]:
    """Lists the index of every group's degree, the largest degree first."""
    return [kind for kind in reversed(range(len(counts))) for _ in range(counts[kind])]


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
