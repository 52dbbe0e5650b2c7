"""Solves FlexSP's integer programme for sequence plans on HiGHS, as a reference for the default planner.

Source: FlexSP, arXiv 2412.01523, eqs. 15 to 22. The module does not import torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

from learning.planning.sequence_cost import ClusterCost, Floats, Group, GroupedMicroBatch, Ints


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
