"""Which ranks share which sequences: groups of different sequence-parallel degree in a step (FlexSP, arXiv 2412.01523).

A long sequence needs many ranks to fit; a short one is quickest on few, where the all-to-all stays inside a node. So a
global batch is sorted by length and cut into micro-batches (takeaway of the paper's section 5: little variance inside
one), and each gets the mixture of groups that finishes first (`learning.planning.sequence_fill`).

Where to cut is a shortest path: nodes are places in the sorted batch, an arc is the micro-batch between two of them and
as long as it takes. An arc's lower bound is cheap and planning it is not, so only arcs on a path that still could be
the shortest are planned (lazy shortest path: Dellin and Srinivasa, ICAPS 2016). The paper cuts into even tokens
instead (eqs. 23 and 24, `cut` here); those cuts are among the paths.

`learning.planning.sequence_milp` holds the paper's integer programme. No torch here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import ClusterCost, Floats, Group, Ints, MicroBatch, legal_degrees
from learning.planning.sequence_fill import enumerate_and_fill, homogeneous
from schemas.failure import PlanError

__all__ = ["ClusterCost", "Group", "MicroBatch", "cut", "legal_degrees", "plan", "total"]
PLACES = 24
"""Places to cut at, evenly over the tokens, per two micro-batches."""
SINGLES = 8
"""The longest sequences, each of which may begin a micro-batch of its own."""
EVEN = 24
"""How many numbers of micro-batches of even tokens are tried with one degree for all."""
MOST = 128
"""Mixtures filled per micro-batch, the likeliest first."""
SLACK = 0.01
"""Mixtures that would be quicker by less than this share are not looked for."""


def plan(lengths: Sequence[int], ranks: int, cost: ClusterCost, effort: float = 16.0) -> list[MicroBatch]:
    """The quickest plan found for one global batch; never slower than even cuts with the best single degree in each.

    Args:
        lengths: tokens of the sequences.
        ranks: a power of two.
        cost: the cluster.
        effort: how often, on average, a sequence may be planned in another micro-batch before the search ends.

    Raises:
        PlanError: a sequence that fits on no group; fewer sequences than any plan needs.
    """
    if not len(lengths):
        return []
    long = np.asarray(lengths, dtype=np.int64)
    cost.least_degree(int(long.max()))
    order = np.argsort(long, kind="stable")
    search = _Search(long[order], ranks, cost)
    made = search.run(effort)
    if made is None:
        raise PlanError(
            f"{len(long)} sequences cannot be laid on {ranks} ranks.", "Raise train.batch or use fewer ranks."
        )
    return [_named(batch, order[start:end]) for start, end, batch in made]


def total(micro_batches: Sequence[MicroBatch]) -> float:
    """Predicted milliseconds of micro-batches that follow one another."""
    return sum(batch.milliseconds for batch in micro_batches)


def cut(lengths: npt.ArrayLike, number: int) -> list[Ints]:
    """Indices sorted by length, cut into `number` stretches whose largest token sum is least (eqs. 23 and 24)."""
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(long, kind="stable")
    return [order[start:end] for start, end in pairwise(_even(long[order], number))]


def _even(long: Ints, number: int) -> list[int]:
    """Where rising lengths are cut."""
    sums = np.concatenate([[0], np.cumsum(long)])
    low, high = int(long.max()), int(sums[-1])
    while low < high:
        middle = (low + high) // 2
        if len(_edges(sums, middle)) - 1 <= number:
            high = middle
        else:
            low = middle + 1
    return _edges(sums, low)


def _edges(sums: Ints, bound: int) -> list[int]:
    edges = [0]
    while edges[-1] < len(sums) - 1:
        edges.append(int(np.searchsorted(sums, sums[edges[-1]] + bound, side="right")) - 1)
    return edges


def _named(batch: MicroBatch, members: Ints) -> MicroBatch:
    """A micro-batch with indices into the whole batch."""
    groups = (
        Group(group.degree, group.first, tuple(int(members[index]) for index in group.sequences))
        for group in batch.groups
    )
    return MicroBatch(tuple(groups), batch.milliseconds)


@dataclass(frozen=True, slots=True)
class _Arc:
    batch: MicroBatch | None
    """None if the sequences fit on no mixture."""

    @property
    def milliseconds(self) -> float:
        return self.batch.milliseconds if self.batch is not None else math.inf


class _Search:
    """The shortest path over cuts of one batch, `long` rising."""

    def __init__(self, long: Ints, ranks: int, cost: ClusterCost) -> None:
        self._long, self._ranks, self._cost = long, ranks, cost
        self._sums = np.concatenate([[0], np.cumsum(long)])
        whole = max(cost.capacity(degree) * (ranks // degree) for degree in cost.degrees)
        least = max(1, math.ceil(int(self._sums[-1]) / max(1, whole)))
        even = [_even(long, number) for number in range(least, min(least + EVEN, max(least, len(long))) + 1)]
        self._nodes = self._places(least, even)
        self._weights = self._bounds(whole)
        self._planned: dict[tuple[int, int], _Arc] = {}
        self._spent = 0
        self._start = self._same_degree(even)

    def run(self, effort: float) -> list[tuple[int, int, MicroBatch]] | None:
        """The micro-batches of the shortest path as (start, end, plan); None if there is no path."""
        for arc in self._start:
            self._plan(arc)
        while True:
            length, path = self._shortest(self._weights)
            waiting = [arc for arc in path if arc not in self._planned]
            known = self._known() if waiting else self._weights
            best, quickest = self._shortest(known)
            done = not waiting or best <= length * (1 + SLACK / 2)
            if math.isfinite(best) and (done or self._spent > effort * len(self._long)):
                return [self._made(arc) for arc in quickest]
            if not waiting:
                return None
            waiting.sort(key=lambda arc: self._nodes[arc[1]] - self._nodes[arc[0]])
            for arc in waiting[: -(-len(waiting) // 2)]:
                self._plan(arc)

    def _made(self, arc: tuple[int, int]) -> tuple[int, int, MicroBatch]:
        batch = self._planned[arc].batch
        assert batch is not None
        return int(self._nodes[arc[0]]), int(self._nodes[arc[1]]), batch

    def _places(self, least: int, even: list[list[int]]) -> Ints:
        size = len(self._long)
        places = np.linspace(0, self._sums[-1], 1 + PLACES * max(1, least // 2))
        singles = range(max(0, size - SINGLES), size + 1)
        found = np.concatenate([np.searchsorted(self._sums, places), singles, *even, [0]])
        return np.unique(np.minimum(found, size)).astype(np.int64)

    def _bounds(self, whole: int) -> Floats:
        """A lower bound of every arc's time; infinite where there is none. (nodes, nodes)."""
        cost, nodes = self._cost, self._nodes
        degrees = np.array(cost.degrees)
        added = np.stack([cost.milliseconds(self._long, degree) for degree in cost.degrees], axis=1)
        room = np.array([cost.capacity(degree) for degree in cost.degrees])
        quick = np.where(self._long[:, None] <= room, added, np.inf)
        shared = np.concatenate([[0.0], np.cumsum((quick * degrees).min(axis=1))]) / self._ranks
        alone = np.concatenate([[0.0], quick.min(axis=1)])
        start, end = np.meshgrid(nodes, nodes, indexing="ij")
        bounds = cost.fixed + np.maximum(shared[end] - shared[start], alone[end])
        fewest = self._ranks // max(cost.degrees)
        impossible = (end - start < fewest) | (self._sums[end] - self._sums[start] > whole)
        return np.where(impossible, np.inf, bounds)

    def _same_degree(self, even: list[list[int]]) -> list[tuple[int, int]]:
        """The even cut that is quickest with the best single degree in each micro-batch, as arcs; empty if none is."""
        best, found = math.inf, []
        for edges in even:
            times = []
            for start, end in pairwise(edges):
                made = homogeneous(self._long[start:end], self._ranks, self._cost)
                times.append(made.milliseconds if made is not None else math.inf)
                if sum(times) >= best:
                    break
            if sum(times) < best:
                best, found = sum(times), [(start, end) for start, end in pairwise(edges)]
        place = {int(node): index for index, node in enumerate(self._nodes)}
        return [(place[start], place[end]) for start, end in found]

    def _plan(self, arc: tuple[int, int]) -> None:
        members = self._long[self._nodes[arc[0]] : self._nodes[arc[1]]]
        made = _Arc(enumerate_and_fill(members, self._ranks, self._cost, SLACK, MOST))
        self._planned[arc] = made
        self._weights[arc] = made.milliseconds
        self._spent += len(members)

    def _known(self) -> Floats:
        known = np.full_like(self._weights, np.inf)
        for arc, made in self._planned.items():
            known[arc] = made.milliseconds
        return known

    def _shortest(self, weights: Floats) -> tuple[float, list[tuple[int, int]]]:
        """Length and arcs of the shortest path from the first node to the last; infinite and empty if there is none."""
        size = len(self._nodes)
        reached, came = np.full(size, np.inf), np.zeros(size, dtype=np.int64)
        reached[0] = 0.0
        for node in range(1, size):
            through = reached[:node] + weights[:node, node]
            came[node] = through.argmin()
            reached[node] = through[came[node]]
        path, node = [], size - 1
        while node and math.isfinite(reached[-1]):
            path.append((int(came[node]), node))
            node = int(came[node])
        return float(reached[-1]), path[::-1]
