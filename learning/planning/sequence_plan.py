"""Plans the ranks of sequences: groups of different sequence-parallel degree in a step (FlexSP, arXiv 2412.01523).

A long sequence only fits on many ranks. A short sequence is fastest on few ranks, whose all-to-all stays within a node.
So a global batch is sorted by length and cut into micro-batches of similar sequences (section 5 of the paper). Each
micro-batch gets the fastest mixture of groups that is found (`learning.planning.sequence_mix`).

The best cut is a shortest path. Nodes are places in the sorted batch, and an arc is the micro-batch between two places,
with its time as the length. A lower bound of an arc is cheap, but planning an arc is not. So only arcs on a possibly
shortest path are planned (lazy shortest path: Dellin and Srinivasa, ICAPS 2016), first over few places, then over more.
The paper instead cuts into parts with equal tokens (eqs. 23 and 24). The search begins with the best of these cuts that
have one degree per micro-batch. A count of the work limits the search, not a clock, so all ranks make the same plan.

Cuts leave memory unused in groups of long sequences. So whole batches are also packed, with long and short sequences
together (`learning.planning.sequence_pack`). The plan is the faster of path and packing.

`learning.planning.sequence_pack` has the paper's integer programme. This module does not import torch.

The module cuts a sorted batch into micro-batches with equal tokens, or by the shortest path.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import ClusterCost, Floats, Group, GroupedMicroBatch, Ints, legal_degrees
from learning.planning.sequence_mix import FILLS, Filled, Load, evened, load_of, micro_batch, quickest, refined
from learning.planning.sequence_pack import SHARES, Bin, filled, first_fit, least, packed, packed_ms, spread
from schemas.failure import PlanError

Edges = list[int]
"""Places at which a sorted batch is cut, including both ends."""
Arc = tuple[int, int]


def cut(lengths: npt.ArrayLike, number: int) -> list[Ints]:
    """Cuts indices sorted by length into `number` ranges with the smallest maximum of token sums (FlexSP, eqs. 23,
    24)."""
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(long, kind="stable")
    return [order[start:end] for start, end in pairwise(even(long[order], number))]


def even(rising: Ints, number: int) -> Edges:
    """Cuts rising lengths into at most `number` ranges with the smallest maximum of token sums."""
    sums = [0, *np.cumsum(rising).tolist()]
    longest, share = int(rising.max()), -(-sums[-1] // number)
    low, high = max(longest, share), longest + share
    while low < high:
        middle = (low + high) // 2
        if len(_edges(sums, middle)) - 1 <= number:
            high = middle
        else:
            low = middle + 1
    return _edges(sums, low)


def _edges(sums: list[int], bound: int) -> Edges:
    edges: Edges = [0]
    while edges[-1] < len(sums) - 1:
        edges.append(bisect_right(sums, sums[edges[-1]] + bound) - 1)
    return edges


def shortest(weights: Floats) -> tuple[float, list[Arc]]:
    """Finds the length and arcs of the shortest path from the first node to the last; infinite and empty if there is
    none.

    Args:
        weights: (nodes, nodes) lengths of the arcs from a node to a later node.
    """
    size = len(weights)
    reached, came = np.full(size, np.inf), np.zeros(size, dtype=np.int64)
    reached[0] = 0.0
    for node in range(1, size):
        through = reached[:node] + weights[:node, node]
        came[node] = through.argmin()
        reached[node] = through[came[node]]
    path: list[Arc] = []
    node = size - 1
    while node and math.isfinite(reached[-1]):
        path.append((int(came[node]), node))
        node = int(came[node])
    return float(reached[-1]), path[::-1]


__all__ = ["ClusterCost", "Group", "GroupedMicroBatch", "cut", "legal_degrees", "plan", "total"]
STAGES = (40, 80, 160, 320)
"""Numbers of places for cuts, evenly over the tokens: first few, then more."""
SINGLES = 8
"""Number of longest sequences after each of which a micro-batch may end."""
EVEN, LONGER = 24, 96
"""Number of counts of equal micro-batches to try with one degree each, and the number if none of them fits."""
WORK, RANKS, MOST = 700_000, 1_024, 4
"""Work of the search for 1,024 ranks, in placed sequences; fewer ranks get up to four times as much."""
LAST = 8
"""Divisor of the work for the additional share at the end of the search."""
PACKED = 4
"""Divisor of the work for packings; packings that fill groups whole are always made and not counted."""
EFFORT = 16
"""Approximate number of micro-batches in which a sequence is planned."""
ABORTED = 4
"""Number of fillings of which about one runs to its end."""
MORE = 2
"""Maximum number of additional micro-batches, compared with packing, over which sequences of one degree are spread."""
FAR = 16
"""Maximum sum of the distances of changes of mixtures, in degrees, over all micro-batches of a path."""
FEW = 256
"""Maximum number of sequences for which first fit is tried at each degree; for more, it was never the fastest."""
SLACK = 0.001
"""Minimum relative gain for which the search continues."""


def plan(lengths: Sequence[int], ranks: int, cost: ClusterCost, work: int | None = None) -> list[GroupedMicroBatch]:
    """Searches for the fastest plan for one global batch.

    The plan is never slower than the following simple plans: equal cuts with the best single degree in each, best-fit
    packing at any one degree, balanced groups of any one degree, and, for few sequences, first fit at one degree. There
    is a plan if every sequence fits on a group.

    Args:
        lengths: tokens of the sequences.
        ranks: number of ranks, a power of two.
        cost: the cluster.
        work: the budget of the search, in placed sequences; None for a budget by the number of ranks.

    Raises:
        PlanError: a sequence fits on no group, or has a negative length.
    """
    if not len(lengths):
        return []
    if min(lengths) < 0:
        raise PlanError(f"a sequence of {min(lengths)} tokens.", "Give lengths of 0 or more.")
    cost.least_degree(max(lengths))
    budget = WORK * min(MOST, max(1, RANKS // ranks)) if work is None else work
    load, order = load_of(lengths, cost, budget + budget // LAST)
    made = _Search(load, ranks, budget).run()
    return [micro_batch(found, load, order[members]) for members, found in reversed(made)]


def total(micro_batches: Sequence[GroupedMicroBatch]) -> float:
    """Sums the predicted milliseconds of consecutive micro-batches."""
    return sum(batch.milliseconds for batch in micro_batches)


Planned = tuple[Ints, Filled]
"""A micro-batch: its sequences, by their numbers in the load, and the group of each."""


def _spent(made: list[Planned]) -> float:
    """Sums the milliseconds of micro-batches; infinite if there are none."""
    return sum(found.milliseconds for _, found in made) if made else math.inf


class _Search:
    """Searches for the shortest path over cuts of one batch, with the longest sequences first."""

    def __init__(self, load: Load, ranks: int, work: int) -> None:
        self._load, self._ranks = load, ranks
        self._size, self._degrees = len(load.tokens), np.array(load.degrees)
        self._sums = np.concatenate([[0], np.cumsum(load.tokens)])
        self._room = np.array(load.room) * (ranks // self._degrees)
        self._last, self._packings = work // LAST, work // (PACKED * self._size)
        self._fills = min(FILLS, max(2, work // (EFFORT * self._size)))
        self._look = 10 * (100 + ranks.bit_length() * len(load.degrees) ** 2)
        """Cost of a search for mixtures of one micro-batch, in placed sequences, as measured."""
        self._planned: dict[Arc, Filled | None] = {}

    @property
    def _left(self) -> float:
        """Computes the remaining work, without the share for the end."""
        return self._load.work.left - self._last

    def run(self) -> list[Planned]:
        """Finds the micro-batches of the shortest path, or of a packing if it is faster."""
        edges, near = self._of_one_degree()
        if self._left > 0:
            edges = self._shorter(edges, self._places(edges, near, STAGES[0]))
        packing = self._packing(_spent(self._path(edges)))
        for number in STAGES[1:]:
            if self._left > 0:
                edges = self._shorter(edges, self._places(edges, near, number))
        best = min(self._path(edges), packing, key=_spent)
        fills = min(FILLS, int(max(0, self._left) // 2 + self._last) // (ABORTED * self._size))
        far = max(1, FAR // (1 + len(best)))
        return [(members, self._finished(members, found, fills, far)) for members, found in best]

    def _finished(self, members: Ints, found: Filled, fills: int, far: int) -> Filled:
        """Plans a micro-batch of the final plan with the remaining work."""
        part = self._load.part(members)
        better = quickest(part, self._ranks, fills, found, far)
        assert better is not None
        return evened(part, refined(part, better, fills))

    def _path(self, edges: Edges) -> list[Planned]:
        """Lists the micro-batches of a path."""
        made = [(np.arange(start, end), self._plan(start, end)) for start, end in pairwise(edges)]
        return [(members, found) for members, found in made if found is not None]

    def _packing(self, limit: float) -> list[Planned]:
        """Finds the fastest packing, with other mixtures in micro-batches where these are faster.

        Packings that certainly take longer than the limit are not made.
        """
        load, ranks = self._load, self._ranks
        best, found, left = math.inf, list[list[Bin]](), self._packings

        def tried(bound: float, make: Callable[[], list[list[Bin]] | None], always: bool = False) -> int:
            """Makes a packing and counts its micro-batches; 0 if there is none, or if it certainly takes too long."""
            nonlocal best, found, left
            if bound >= min(best, limit) or not (always or left > 0):
                return 0
            made = make() or []
            load.work.left -= self._size
            left -= 1
            if made and (time := packed_ms(load, made)) < best:
                best, found = time, made
            return len(made)

        needed: dict[int, int] = {}
        for share, floor in product(SHARES, range(len(load.degrees))):
            number = tried(least(load, ranks, floor, share), partial(packed, load, ranks, floor, share), share == 1.0)
            needed.setdefault(floor, number)
        alone = [
            kind for kind, degree in enumerate(load.degrees) if degree <= ranks and load.sizes[0] <= load.room[kind]
        ]
        for kind, more in product([kind for kind in alone if needed[kind]], range(MORE + 1)):
            bound = least(load, ranks, kind, 1.0) + more * load.fixed
            tried(bound, partial(spread, load, ranks, kind, needed[kind] + more), more == 0)
        for kind in alone if self._size <= FEW else ():
            tried(least(load, ranks, kind, 1.0), partial(first_fit, load, ranks, kind))
        made = [filled(load, ranks, groups) for groups in found]
        return [(members, self._mixed(members, one) or one) for members, one in made]

    def _mixed(self, members: Ints | slice, found: Filled | None = None) -> Filled | None:
        """Finds a mixture for these sequences with little work; returns `found` if it is not slower."""
        fills = self._fills if self._left > 0 else 0
        self._load.work.left -= self._look
        return quickest(self._load.part(members), self._ranks, fills, found)

    def _shorter(self, edges: Edges, nodes: Ints) -> Edges:
        """Finds the shortest path over nodes that include the given cut; the path is never longer than the cut."""
        known = np.full((len(nodes), len(nodes)), math.inf)
        bounds = self._bounds(nodes)
        at = {int(node): index for index, node in enumerate(nodes)}
        planned = [arc for arc in self._planned if arc[0] in at and arc[1] in at]
        waiting = [(at[start], at[end]) for start, end in [*pairwise(edges), *planned]]
        while True:
            for start, end in waiting:
                made = self._plan(int(nodes[start]), int(nodes[end]))
                known[start, end] = math.inf if made is None else made.milliseconds
                wider = bounds[: start + 1, end:]  # no micro-batch is faster than a part of it
                np.maximum(wider, known[start, end], out=wider)
            best, found = shortest(known)
            least, path = shortest(np.minimum(bounds, known))
            waiting = [arc for arc in path if known[arc] > bounds[arc]]
            if not waiting or best <= least * (1 + SLACK) or self._left <= 0:
                return [0, *(int(nodes[end]) for _, end in found)]
            waiting.sort(key=lambda arc: nodes[arc[1]] - nodes[arc[0]])
            del waiting[-(-len(waiting) // 2) :]

    def _plan(self, start: int, end: int) -> Filled | None:
        """Plans the micro-batch between two places; None if no filled mixture has room for it."""
        if (start, end) not in self._planned:
            self._planned[start, end] = self._mixed(slice(start, end))
        return self._planned[start, end]

    def _places(self, edges: Edges, near: list[Edges], number: int) -> Ints:
        """Lists places for cuts: `number` places evenly over the tokens, about as many of cuts with a similar time, and
        the given cut."""
        places = self._sums.searchsorted(np.linspace(0, int(self._sums[-1]), 1 + number)).tolist()
        found = {*places, *range(min(SINGLES, self._size) + 1), *edges}
        for others in near:
            if len(found) < 2 * number:
                found.update(others)
        return np.array(sorted(found))

    def _bounds(self, nodes: Ints) -> Floats:
        """Computes a lower bound of every arc's time, (nodes, nodes); infinite where there is no arc."""
        load = self._load
        work = np.concatenate([[0.0], np.cumsum((load.added * self._degrees).min(axis=1))]) / self._ranks
        alone = np.append(load.added.min(axis=1), 0.0)
        start, end = np.meshgrid(nodes, nodes, indexing="ij")
        bounds = load.fixed + np.maximum(work[end] - work[start], alone[start])
        impossible = (end <= start) | (self._sums[end] - self._sums[start] > self._room.max())
        return np.where(impossible, math.inf, bounds)

    def _of_one_degree(self) -> tuple[Edges, list[Edges]]:
        """Finds the fastest equal cut with one degree per micro-batch, and lists all tried cuts."""
        rising = self._load.tokens[::-1]
        least = min(self._size, max(1, -(-int(self._sums[-1]) // max(1, int(self._room.max())))))
        for first in range(least, min(least + LONGER, self._size + 1), EVEN):
            numbers = range(first, min(first + EVEN, self._size + 1))
            cuts = [[self._size - edge for edge in reversed(even(rising, number))] for number in numbers]
            bounds = [self._least_of_one_degree(edges) for edges in cuts]
            best = math.inf
            found: Edges | None = None
            order = [int(place) for place in np.argsort(bounds, kind="stable")]
            for place in order:
                if bounds[place] < best and (spent := self._spent_of_one_degree(cuts[place], best)) < best:
                    best, found = spent, cuts[place]
            if found is not None:
                return found, [cuts[place] for place in order]
        return self._halved(0, self._size), []

    def _least_of_one_degree(self, edges: Edges) -> float:
        """Computes a lower bound of the result of `_spent_of_one_degree`."""
        starts, ends = edges[:-1], edges[1:]
        added = np.where(np.isfinite(self._load.added), self._load.added, 0.0)
        shared = np.add.reduceat(added, starts) * self._degrees / self._ranks
        spans = np.maximum(self._load.added[starts], shared)
        spans[(self._sums[ends] - self._sums[starts])[:, None] > self._room] = math.inf
        return float((self._load.fixed + spans.min(axis=1)).sum())

    def _spent_of_one_degree(self, edges: Edges, limit: float) -> float:
        """Computes the milliseconds of a cut with the best single degree per micro-batch; infinite if not below the
        limit."""
        spent = 0.0
        for start, end in pairwise(edges):
            made = quickest(self._load.part(slice(start, end)), self._ranks, 0)
            spent += math.inf if made is None else made.milliseconds
            if spent >= limit:
                return math.inf
        return spent

    def _halved(self, start: int, end: int) -> Edges:
        """Makes a cut that certainly fits: halves parts until one degree has room for each; a single sequence always
        fits."""
        if quickest(self._load.part(slice(start, end)), self._ranks, 0) is not None:
            return [start, end]
        middle = (start + end) // 2
        return self._halved(start, middle)[:-1] + self._halved(middle, end)
