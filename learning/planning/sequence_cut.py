"""Cuts a batch sorted by length into micro-batches: of even tokens, or by the shortest path over cuts."""

import math
from bisect import bisect_right
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import Floats, Ints

Edges = list[int]
"""Places where a sorted batch is cut, its ends included."""
Arc = tuple[int, int]


def cut(lengths: npt.ArrayLike, number: int) -> list[Ints]:
    """Indices sorted by length, cut into `number` stretches whose largest token sum is least (FlexSP, eqs. 23, 24)."""
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(long, kind="stable")
    return [order[start:end] for start, end in pairwise(even(long[order], number))]


def even(rising: Ints, number: int) -> Edges:
    """Cuts rising lengths into at most `number` stretches whose largest token sum is least."""
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
    """Length and arcs of the shortest path from the first node to the last; infinite and empty if there is none.

    Args:
        weights: (nodes, nodes) of the arcs from a node to a later one.
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
