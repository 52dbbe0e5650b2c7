"""Packs long and short sequences together into micro-batches: best-fit decreasing, as in FlexSP's release.

If a sorted batch is cut, short sequences never use the memory that long ones leave. This costs micro-batches if
sequences are large compared with a group. For lengths 6, 6, 4, 4 in groups of 10 tokens, cuts make three micro-batches
and packing makes two. A sequence opens a group of the smallest degree with room for it, but at least of a floor. If the
floor has room for the longest sequence, all groups have one degree. Groups of similar time then share a micro-batch
(first-fit decreasing height over the ranks). For few sequences, first fit is sometimes faster. If groups are not full,
it is faster to spread the sequences evenly over the required number of groups (longest processing time first).

As a reference for the default planner, the module also solves FlexSP's integer programme on HiGHS (arXiv 2412.01523,
eqs. 15 to 22). It does not import torch.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import ClusterCost, Floats, Group, GroupedMicroBatch, Ints
from learning.planning.sequence_mix import Filled, Load


@dataclass(frozen=True, slots=True)
class MilpSolution:
    """Best solution of the programme within its time limit."""

    batch: GroupedMicroBatch | None
    """Solution; None if none was found."""
    proven: bool
    """Whether the solution is proven to be within the requested gap; False if the time limit was reached."""


def buckets(lengths: npt.ArrayLike, number: int) -> tuple[Ints, Ints]:
    """Computes bounds of at most `number` buckets that round lengths up by the fewest tokens (eqs. 15 and 16).

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
    origin: list[Ints] = []
    for _ in range(min(number, size)):
        start, end = np.meshgrid(np.arange(size), np.arange(1, size + 1))
        rounded = values[end - 1] * (weight[end] - weight[start]) - (mass[end] - mass[start])
        totals = np.where(start < end, error[start] + rounded, np.iinfo(np.int64).max // 2)
        came = totals.argmin(axis=1)
        error = np.concatenate([[0], totals[np.arange(size), came]])
        origin.append(came)
    bounds: list[int] = []
    end = size
    for came in reversed(origin):
        if end == 0:
            break
        bounds.append(int(values[end - 1]))
        end = int(came[end - 1])
    upper = np.array(sorted(bounds), dtype=np.int64)
    return upper, np.searchsorted(upper, long)


def mixed_integer(
    lengths: npt.ArrayLike, ranks: int, cost: ClusterCost, number: int = 16, seconds: float = 5.0, gap: float = 0.0
) -> MilpSolution:
    """Solves the paper's integer programme over buckets (eqs. 17 to 22) on HiGHS.

    Variables: whether group p is used, how many sequences of bucket q it takes, and the makespan. Groups of a degree
    are interchangeable, so a group is used only if the previous group of its degree is used.

    Args:
        lengths: lengths of one micro-batch. ranks, cost: the cluster.
        number: number of buckets; with as many buckets as lengths, the result is exact.
        seconds: time limit.
        gap: relative gap at which the solver may stop.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # here, since the default planner does not need it

    long = np.asarray(lengths, dtype=np.int64)
    upper, bucket = buckets(long, number)
    held = np.bincount(bucket, minlength=len(upper))
    degrees = [degree for degree in cost.degrees for _ in range(ranks // degree)]
    groups = len(degrees)
    matrix, low, high = _constraints(upper, held, degrees, ranks, cost)
    objective = np.zeros(matrix.shape[1])
    objective[-1] = 1.0
    most = np.concatenate([np.ones(groups), np.tile(held, groups), [np.inf]])
    answer = milp(
        objective,
        constraints=LinearConstraint(matrix, low, high),
        integrality=np.concatenate([np.ones(len(objective) - 1), [0]]),
        bounds=Bounds(0, most),
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
    batch = None if answer.x is None else _read(answer.x, long, bucket, degrees, ranks, cost)
    return MilpSolution(batch, answer.status == 0)


def _constraints(
    upper: Ints, held: Ints, degrees: Sequence[int], ranks: int, cost: ClusterCost
) -> tuple[Floats, Floats, Floats]:
    """Builds eqs. 18 to 22: coefficients (rows, variables), and the minimum and maximum of each row.

    Args:
        upper, held: (q,) the length of each bucket, and its number of sequences.
        degrees: (p,) degrees of all possible groups. ranks, cost: the cluster.
    """
    groups, kinds = len(degrees), len(upper)
    size = groups + groups * kinds + 1
    rows: list[tuple[dict[int, float], float, float]] = []
    for place, degree in enumerate(degrees):
        takes = [groups + place * kinds + kind for kind in range(kinds)]
        each = cost.milliseconds(upper, degree)
        ends = {takes[kind]: float(each[kind]) for kind in range(kinds)}
        rows.append(({**ends, place: cost.fixed, size - 1: -1.0}, -np.inf, 0.0))
        tokens = {takes[kind]: float(upper[kind]) for kind in range(kinds)}
        rows.append(({**tokens, place: -float(cost.capacity(degree))}, -np.inf, 0.0))
        if place and degrees[place - 1] == degree:
            rows.append(({place - 1: 1.0, place: -1.0}, 0.0, np.inf))
    rows.append(({place: float(degree) for place, degree in enumerate(degrees)}, 0.0, float(ranks)))
    for kind in range(kinds):
        taken = {groups + place * kinds + kind: 1.0 for place in range(groups)}
        rows.append((taken, float(held[kind]), float(held[kind])))
    matrix = np.zeros((len(rows), size))
    for row, (terms, _, _) in enumerate(rows):
        matrix[row, list(terms)] = list(terms.values())
    return matrix, np.array([low for _, low, _ in rows]), np.array([high for _, _, high in rows])


def _read(
    solution: Floats, long: Ints, bucket: Ints, degrees: Sequence[int], ranks: int, cost: ClusterCost
) -> GroupedMicroBatch:
    """Builds the groups of a solution, largest first so that each starts at a multiple of its degree, with its exact
    time."""
    kinds = int(bucket.max()) + 1
    waiting = [list(np.flatnonzero(bucket == kind)) for kind in range(kinds)]
    taken: list[tuple[int, tuple[int, ...]]] = []
    for place, degree in enumerate(degrees):
        start = len(degrees) + place * kinds
        counts = np.rint(solution[start : start + kinds]).astype(int)
        members = tuple(int(waiting[kind].pop()) for kind in range(kinds) for _ in range(counts[kind]))
        if members:
            taken.append((degree, members))
    taken.sort(key=lambda one: -one[0])
    groups: list[Group] = []
    spans: list[float] = []
    first = 0
    for degree, members in taken:
        groups.append(Group(degree, first, members))
        first += degree
        spans.append(cost.fixed + float(cost.milliseconds(long[list(members)], degree).sum()))
    least = min(degrees)
    groups += [Group(least, idle, ()) for idle in range(first, ranks, least)]
    return GroupedMicroBatch(tuple(groups), max(spans))


SHARES = (1.0, 0.9, 0.7, 0.5)
"""Shares of a group's memory up to which it is packed; lower shares make more micro-batches with more even groups."""


@dataclass(slots=True)
class Bin:
    """A group during packing."""

    kind: int
    """Index of the group's degree."""
    members: list[int]
    work: float
    """Milliseconds of the group's sequences."""


def packed(load: Load, ranks: int, floor: int, share: float) -> list[list[Bin]]:
    """Packs the groups of every micro-batch, the slowest first; every sequence must fit on a group.

    Args:
        load: the sequences.
        ranks: number of ranks.
        floor: index of the smallest degree of a group.
        share: share of a group's memory up to which it is filled, if its sequences allow this.
    """
    bins = sorted(_bins(load, floor, share), key=lambda one: -one.work)
    made: list[list[Bin]] = []
    left: list[int] = []
    first = [0] * len(load.degrees)  # first micro-batch with room for a group, as room only shrinks
    for one in bins:
        width, at = load.degrees[one.kind], first[one.kind]
        while at < len(left) and left[at] < width:
            at += 1
        first[one.kind] = at
        if at == len(left):
            made.append([])
            left.append(ranks)
        made[at].append(one)
        left[at] -= width
    return made


def first_fit(load: Load, ranks: int, kind: int) -> list[list[Bin]]:
    """Packs groups of one degree with room for every sequence, by first fit.

    The longest sequence goes first, into the first micro-batch with room, and there to the group with the fewest
    tokens.
    """
    made: list[list[tuple[int, int, Bin]]] = []
    groups, room = ranks // load.degrees[kind], load.room[kind]
    for index, (tokens, row) in enumerate(zip(load.sizes, load.rows, strict=True)):
        batch = next((one for one in made if one[0][0] + tokens <= room), None)
        if batch is None:
            batch = [(0, place, Bin(kind, [], 0.0)) for place in range(groups)]
            made.append(batch)
        held, place, least_full = batch[0]
        least_full.members.append(index)
        least_full.work += row[kind]
        heapq.heapreplace(batch, (held + tokens, place, least_full))
    found = [[one for _, _, one in batch if one.members] for batch in made]
    return [sorted(batch, key=lambda one: -one.work) for batch in found]


def spread(load: Load, ranks: int, kind: int, number: int) -> list[list[Bin]] | None:
    """Packs a given number of micro-batches of groups of one degree: the longest sequence first, to the group with room
    that has the least work. Returns None if a sequence finds no room."""
    groups = ranks // load.degrees[kind]
    bins = [Bin(kind, [], 0.0) for _ in range(groups * number)]
    ready = [(0.0, place, load.room[kind]) for place in range(len(bins))]  # work, number, room
    for index, (tokens, row) in enumerate(zip(load.sizes, load.rows, strict=True)):
        full: list[tuple[float, int, int]] = []
        while ready and ready[0][2] < tokens:
            full.append(heapq.heappop(ready))
        load.work.left -= len(full)
        if not ready:
            return None
        work, place, room = ready[0]
        bins[place].members.append(index)
        bins[place].work = work + row[kind]
        heapq.heapreplace(ready, (work + row[kind], place, room - tokens))
        for one in full:
            if one[2] >= load.sizes[-1]:
                heapq.heappush(ready, one)
    made = sorted((one for one in bins if one.members), key=lambda one: -one.work)
    return [made[at : at + groups] for at in range(0, len(made), groups)]


def packed_ms(load: Load, made: list[list[Bin]]) -> float:
    """Sums the milliseconds of packed micro-batches."""
    return sum(load.fixed + groups[0].work for groups in made)


def least(load: Load, ranks: int, floor: int, share: float) -> float:
    """Computes a lower bound of such a packing's time: the larger of an even load of all ranks and the longest
    sequence."""
    work = load.added[:, floor:] * np.array(load.degrees[floor:])
    rooms = np.array(_rooms(load, _kinds(load, floor), share)) / np.array(load.degrees)
    number = max(1, math.ceil(int(load.tokens.sum()) / (ranks * float(rooms[floor:].max())) - 1e-9))
    alone = load.added[0, floor:].min()
    return max(load.fixed + float(alone), load.fixed * number + float(work.min(axis=1).sum()) / ranks)


def filled(load: Load, ranks: int, groups: list[Bin]) -> tuple[Ints, Filled]:
    """Fills a packed micro-batch: its sequences, longest first, with the group of each; idle ranks get empty groups."""
    groups = sorted(groups, key=lambda one: -one.kind)
    counts = [0] * len(load.degrees)
    for one in groups:
        counts[one.kind] += 1
    counts[0] += (
        ranks - sum(count * degree for count, degree in zip(counts, load.degrees, strict=True))
    ) // load.degrees[0]
    members = np.array([index for one in groups for index in one.members])
    places = np.repeat(np.arange(len(groups)), [len(one.members) for one in groups])
    order = np.argsort(members, kind="stable")
    end = load.fixed + max(one.work for one in groups)
    return members[order], Filled(tuple(counts), places[order], end)


def _bins(load: Load, floor: int, share: float) -> list[Bin]:
    kinds = _kinds(load, floor)
    rooms = _rooms(load, kinds, share)
    bins: list[Bin] = []
    ready: list[tuple[int, int]] = []  # room and number of bins with room, ascending
    opens: list[int] = kinds.tolist()
    for index, (tokens, kind) in enumerate(zip(load.sizes, opens, strict=True)):
        at = bisect_left(ready, (tokens, -1))
        if at < len(ready):
            room, place = ready.pop(at)
        else:
            room, place = rooms[kind], len(bins)
            bins.append(Bin(kind, [], 0.0))
        one = bins[place]
        one.members.append(index)
        one.work += load.rows[index][one.kind]
        if room - tokens >= load.sizes[-1]:
            insort(ready, (room - tokens, place))
    return bins


def _kinds(load: Load, floor: int) -> Ints:
    """Computes the kind of the group that each sequence opens."""
    return np.maximum(np.isfinite(load.added).argmax(axis=1), floor)


def _rooms(load: Load, kinds: Ints, share: float) -> list[int]:
    """Computes the maximum tokens of groups of each degree: the share, or the longest sequence that opens a group."""
    longest = [int(load.tokens[kinds == kind].max(initial=0)) for kind in range(len(load.degrees))]
    return [max(int(share * room), most) for room, most in zip(load.room, longest, strict=True)]
