"""Which ranks share which sequences: groups of different sequence-parallel degree in a step (FlexSP, arXiv 2412.01523).

A long sequence needs many ranks to fit; a short one is quickest on few, where the all-to-all stays inside a node. So
each micro-batch gets the mixture of groups that finishes first. Three planners with one interface:

- `enumerate_and_fill` (default): every partition of the ranks into groups of 1, 2, 4, ... ranks, filled longest first,
  all partitions at once as arrays. The homogeneous partitions are among them, so it is never worse than the best of
  those. Deterministic.
- `mixed_integer`: the paper's formulation on HiGHS, under a time limit; the specification.
- `homogeneous`: one degree for all; the baseline.

Numbers in equations are the paper's. No torch here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

from schemas.failure import PlanError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClusterCost:
    """What a sequence costs on a group of a degree (eqs. 11 to 14); milliseconds, tokens, MiB."""

    quadratic: float
    """a1, ms per token^2."""
    linear: float
    """a2, ms per token."""
    fixed: float
    """b1 + b2, ms per group and micro-batch."""
    exchanged: float
    """MiB per token that all all-to-alls of a step move, over all ranks of the group."""
    bandwidth: tuple[tuple[int, float], ...]
    """All-to-all bandwidth by degree, GB/s; a degree that is not listed costs no communication."""
    token: float
    """MiB of activations per token."""
    states: float
    """MiB of model states on every rank."""
    memory: float
    """MiB a rank has."""
    degrees: tuple[int, ...]
    """The legal degrees, powers of two: they must divide the model's heads."""

    def milliseconds(self, lengths: npt.ArrayLike, degree: int) -> Floats:
        """What each sequence adds to the time of a group of this degree."""
        long = np.asarray(lengths, dtype=np.float64)
        moved = self.exchanged * long / degree * (2**20 / 1e6)
        speed = dict(self.bandwidth).get(degree)
        return (self.quadratic * long**2 + self.linear * long) / degree + (moved / speed if speed else 0.0)

    def capacity(self, degree: int) -> int:
        """Tokens that fit on a group of this degree."""
        return max(0, int((self.memory - self.states) / self.token * degree))

    def least_degree(self, length: int) -> int:
        """The smallest legal degree that a sequence fits on; raises PlanError if there is none."""
        for degree in self.degrees:
            if length <= self.capacity(degree):
                return degree
        raise PlanError(
            f"a sequence of {length} tokens fits on no group: {self.degrees[-1]} ranks hold "
            f"{self.capacity(self.degrees[-1])}.",
            "Use more ranks, shorten the trajectory (policy.history_images), or recompute activations.",
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive ranks that share their sequences."""

    degree: int
    first: int
    """Its first rank, a multiple of the degree."""
    sequences: tuple[int, ...]
    """Indices into the batch."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Groups that run side by side; together they use every rank and hold at least one sequence each."""

    groups: tuple[Group, ...]
    milliseconds: float
    """Predicted time of the slowest."""


def legal_degrees(ranks: int, query_heads: int, key_heads: int) -> tuple[int, ...]:
    """Powers of two up to `ranks` that divide both head counts: Ulysses gives every rank whole heads.

    Raises:
        PlanError: no ranks, or not a power of two of them.
    """
    if ranks < 1 or ranks & (ranks - 1):
        raise PlanError(f"{ranks} ranks.", "Sequence plans need a power of two.")
    powers = [1 << power for power in range(ranks.bit_length())]
    return tuple(degree for degree in powers if query_heads % degree == 0 and key_heads % degree == 0)


def plan(lengths: Sequence[int], ranks: int, cost: ClusterCost, tries: int = 5) -> list[MicroBatch]:
    """The quickest plan found for one global batch: over numbers of micro-batches, each planned by itself.

    The batch is cut by length into stretches of even tokens (the blaster, eqs. 23 and 24), as few as memory allows or
    up to `tries` - 1 more.

    Raises:
        PlanError: a sequence that fits on no group; fewer sequences than any plan needs.
    """
    if not len(lengths):
        return []
    long = np.asarray(lengths, dtype=np.int64)
    cost.least_degree(int(long.max()))
    whole = cost.capacity(1) * ranks
    least = max(1, math.ceil(int(long.sum()) / whole))
    best: list[MicroBatch] | None = None
    for number in range(least, min(least + tries, max(least, len(long))) + 1):
        made = _planned(long, ranks, cost, number)
        if made is not None and (best is None or total(made) < total(best)):
            best = made
    if best is None:
        raise PlanError(
            f"{len(long)} sequences cannot be laid on {ranks} ranks.", "Raise train.batch or use fewer ranks."
        )
    return best


def total(micro_batches: Sequence[MicroBatch]) -> float:
    """Predicted milliseconds of micro-batches that follow one another."""
    return sum(batch.milliseconds for batch in micro_batches)


def _planned(long: Ints, ranks: int, cost: ClusterCost, number: int) -> list[MicroBatch] | None:
    made = []
    for members in cut(long, number):
        batch = enumerate_and_fill(long[members], ranks, cost)
        if batch is None:
            return None
        groups = tuple(
            Group(group.degree, group.first, tuple(int(members[index]) for index in group.sequences))
            for group in batch.groups
        )
        made.append(MicroBatch(groups, batch.milliseconds))
    return made


def cut(lengths: npt.ArrayLike, number: int) -> list[Ints]:
    """Indices sorted by length, cut into `number` stretches whose largest token sum is least (eqs. 23 and 24)."""
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(long, kind="stable")
    sums = np.concatenate([[0], np.cumsum(long[order])])
    low, high = int(long.max()), int(sums[-1])
    while low < high:
        middle = (low + high) // 2
        if len(_edges(sums, middle)) - 1 <= number:
            high = middle
        else:
            low = middle + 1
    return [order[start:end] for start, end in pairwise(_edges(sums, low))]


def _edges(sums: Ints, bound: int) -> list[int]:
    edges = [0]
    while edges[-1] < len(sums) - 1:
        edges.append(int(np.searchsorted(sums, sums[edges[-1]] + bound, side="right")) - 1)
    return edges


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


def enumerate_and_fill(lengths: npt.ArrayLike, ranks: int, cost: ClusterCost) -> MicroBatch | None:
    """The best of all partitions of the ranks, each filled longest first; None if none can take the sequences.

    A sequence goes to the group where it would end first, among those with room. A group that would stay empty takes
    no part: a partition with one is passed over, since an idle rank would miss the step's collectives.
    """
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-long, kind="stable")
    shapes = [shape for shape in partitions(ranks, cost.degrees) if len(shape) <= len(long)]
    shapes = [shape for shape in shapes if shape[0] >= cost.least_degree(int(long.max()))]
    found = _fill(long[order], shapes, cost)
    if found is None:
        return None
    shape, places, milliseconds = found
    groups, first = [], 0
    for place, degree in enumerate(shape):
        members = tuple(int(order[index]) for index in np.flatnonzero(places == place))
        groups.append(Group(degree, first, members))
        first += degree
    return MicroBatch(tuple(groups), milliseconds)


def _fill(
    long: Ints, shapes: Sequence[tuple[int, ...]], cost: ClusterCost
) -> tuple[tuple[int, ...], Ints, float] | None:
    """Fills all shapes at once, longest sequence first: the best shape, the group of every sequence, its time."""
    if not shapes:
        return None
    degrees = sorted({degree for shape in shapes for degree in shape})
    column = {degree: place for place, degree in enumerate(degrees)}
    width = max(map(len, shapes))
    kind = np.full((len(shapes), width), -1)
    for row, shape in enumerate(shapes):
        kind[row, : len(shape)] = [column[degree] for degree in shape]
    added = np.stack([cost.milliseconds(long, degree) for degree in degrees], axis=1)
    room = np.where(kind >= 0, np.array([cost.capacity(degree) for degree in degrees])[kind], -1)
    load = np.where(kind >= 0, cost.fixed, np.inf)
    chosen = np.empty((len(long), len(shapes)), dtype=np.int16)
    alive = np.arange(len(shapes))
    rows = np.arange(len(shapes))
    for step, length in enumerate(long):
        ends = load + added[step][kind]
        ends[room < length] = np.inf
        place = ends.argmin(axis=1)
        end = ends[rows, place]
        load[rows, place] = end
        room[rows, place] -= length
        chosen[step, alive] = place
        if not np.isfinite(end).all():
            kept = np.isfinite(end)
            alive, load, room, kind = alive[kept], load[kept], room[kept], kind[kept]
            rows = np.arange(len(alive))
            if not len(alive):
                return None
    spans = np.where(np.isfinite(load), load, 0.0).max(axis=1)
    used = np.zeros(kind.shape, dtype=bool)
    used[rows, chosen[:, alive]] = True
    spans[((kind >= 0) & ~used).any(axis=1)] = np.inf
    best = int(spans.argmin())
    if not np.isfinite(spans[best]):
        return None
    return shapes[alive[best]], chosen[:, alive[best]].astype(np.int64), float(spans[best])


def homogeneous(lengths: npt.ArrayLike, ranks: int, cost: ClusterCost, degree: int | None = None) -> MicroBatch | None:
    """Groups of one degree, the given one or the best; None if the sequences fit on none."""
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-long, kind="stable")
    asked = [degree] if degree is not None else cost.degrees
    shapes = [(each,) * (ranks // each) for each in asked]
    found = [_fill(long[order], [shape], cost) for shape in shapes if len(shape) <= len(long)]
    made = [one for one in found if one is not None]
    if not made:
        return None
    shape, places, milliseconds = min(made, key=lambda one: one[2])
    groups = tuple(
        Group(each, place * each, tuple(int(order[index]) for index in np.flatnonzero(places == place)))
        for place, each in enumerate(shape)
    )
    return MicroBatch(groups, milliseconds)


def buckets(lengths: npt.ArrayLike, number: int) -> tuple[Ints, Ints]:
    """Upper bounds of at most `number` buckets that round lengths up by the fewest tokens in all (eqs. 15 and 16).

    Returns:
        The bounds, rising, and the bucket of every length.
    """
    long = np.asarray(lengths, dtype=np.int64)
    values, counts = np.unique(long, return_counts=True)
    size = len(values)
    weight = np.concatenate([[0], np.cumsum(counts)])
    mass = np.concatenate([[0], np.cumsum(counts * values)])
    error = np.full(size + 1, np.iinfo(np.int64).max // 4)
    error[0] = 0
    origin = []
    for _ in range(min(number, size)):
        start, end = np.meshgrid(np.arange(size), np.arange(1, size + 1))
        rounded = values[end - 1] * (weight[end] - weight[start]) - (mass[end] - mass[start])
        totals = np.where(start < end, error[start] + rounded, np.iinfo(np.int64).max // 2)
        came = totals.argmin(axis=1)
        error = np.concatenate([[0], totals[np.arange(size), came]])
        origin.append(came)
    bounds, end = [], size
    for came in reversed(origin):
        if end == 0:
            break
        bounds.append(int(values[end - 1]))
        end = int(came[end - 1])
    upper = np.array(sorted(bounds), dtype=np.int64)
    return upper, np.searchsorted(upper, long)


def mixed_integer(
    lengths: npt.ArrayLike, ranks: int, cost: ClusterCost, number: int = 16, seconds: float = 5.0, gap: float = 0.0
) -> MicroBatch | None:
    """The paper's integer programme over buckets (eqs. 17 to 22) on HiGHS; None if it finds nothing in time.

    Variables: whether group p is used, how many sequences of bucket q it takes, and the makespan. Groups of a degree
    are alike, so a later one is used only after an earlier one.

    Args:
        lengths: of one micro-batch.
        ranks, cost: the cluster.
        number: buckets; as many as there are lengths makes it exact.
        seconds: time limit.
        gap: relative gap at which it may stop.
    """
    long = np.asarray(lengths, dtype=np.int64)
    upper, bucket = buckets(long, number)
    held = np.bincount(bucket, minlength=len(upper))
    degrees = [degree for degree in cost.degrees for _ in range(ranks // degree)]
    groups, kinds = len(degrees), len(upper)
    size = groups + groups * kinds + 1
    objective = np.zeros(size)
    objective[-1] = 1.0
    rows: list[tuple[dict[int, float], float, float]] = []
    for place, degree in enumerate(degrees):
        takes = [groups + place * kinds + kind for kind in range(kinds)]
        each = cost.milliseconds(upper, degree)
        ends = {takes[kind]: float(each[kind]) for kind in range(kinds)}
        rows.append(({**ends, place: cost.fixed, size - 1: -1.0}, -np.inf, 0.0))
        tokens = {takes[kind]: float(upper[kind]) for kind in range(kinds)}
        rows.append(({**tokens, place: -float(cost.capacity(degree))}, -np.inf, 0.0))
        rows.append(({**dict.fromkeys(takes, 1.0), place: -1.0}, 0.0, np.inf))
        if place and degrees[place - 1] == degree:
            rows.append(({place - 1: 1.0, place: -1.0}, 0.0, np.inf))
    rows.append(({place: float(degree) for place, degree in enumerate(degrees)}, float(ranks), float(ranks)))
    for kind in range(kinds):
        taken = {groups + place * kinds + kind: 1.0 for place in range(groups)}
        rows.append((taken, float(held[kind]), float(held[kind])))
    matrix = np.zeros((len(rows), size))
    for row, (terms, _, _) in enumerate(rows):
        matrix[row, list(terms)] = list(terms.values())
    most = np.concatenate([np.ones(groups), np.tile(held, groups), [np.inf]])
    answer = milp(
        objective,
        constraints=LinearConstraint(matrix, *(np.array([row[side] for row in rows]) for side in (1, 2))),  # type: ignore[arg-type]
        integrality=np.concatenate([np.ones(size - 1), [0]]),
        bounds=Bounds(0, most),  # type: ignore[arg-type]
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
    return None if answer.x is None else _read(answer.x, long, bucket, degrees, kinds, cost)


def _read(
    solution: Floats, long: Ints, bucket: Ints, degrees: Sequence[int], kinds: int, cost: ClusterCost
) -> MicroBatch:
    """The groups of a solution, largest first so that each starts at a multiple of its degree; its true time."""
    waiting = [list(np.flatnonzero(bucket == kind)) for kind in range(kinds)]
    taken: list[tuple[int, tuple[int, ...]]] = []
    for place, degree in enumerate(degrees):
        start = len(degrees) + place * kinds
        counts = np.rint(solution[start : start + kinds]).astype(int)
        members = tuple(int(waiting[kind].pop()) for kind in range(kinds) for _ in range(counts[kind]))
        if members:
            taken.append((degree, members))
    taken.sort(key=lambda one: -one[0])
    groups, first, spans = [], 0, []
    for degree, members in taken:
        groups.append(Group(degree, first, members))
        first += degree
        spans.append(cost.fixed + float(cost.milliseconds(long[list(members)], degree).sum()))
    return MicroBatch(tuple(groups), max(spans))
