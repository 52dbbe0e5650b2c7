"""Assigns samples to ranks, phase by phase (post-balancing, OrchMLLM, arXiv 2503.23830).

A step has two phases: the vision encoder, then the language model. A phase ends when its slowest rank ends, and a
sample's costs in the two phases are hardly related. The summed gradient does not depend on the rank that computes a
sample. So after sampling, each phase gets its own assignment of samples to ranks, which balances the phase's cost. The
two algorithms follow the paper's abstract, public code of the same laboratory, and textbooks, since the full paper was
not available.

Costs are whole numbers, so every machine computes the same plan from the same lengths. The module does not import
torch.
"""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.failure import PlanError

Ints = npt.NDArray[np.int64]
ROUNDS = 8
"""Maximum rounds of swaps."""
LEVEL = 0.003
"""Relative excess over the best possible load below which a rank's load is not improved."""
MEMBERS = 12
"""Samples of a rank that are considered for a swap."""


@dataclass(frozen=True, slots=True)
class BalanceCost:
    """Cost of a sequence of l tokens: linear * l + quadratic * l^2, in arbitrary units."""

    linear: int
    quadratic: int = 1

    def of(self, lengths: npt.ArrayLike) -> Ints:
        """Computes the cost of each sequence."""
        long = np.asarray(lengths, dtype=np.int64)
        return self.linear * long + self.quadratic * long * long


def longest_first(
    costs: npt.ArrayLike, ranks: int, tokens: npt.ArrayLike | None = None, cap: int | None = None
) -> Ints:
    """Assigns packed batches: the most expensive remaining sample goes to the least loaded rank, then ranks swap; (n,)
    ranks.

    The makespan is at most 4/3 - 1/(3 ranks) of the best one (Graham, 1969). Ties are resolved by sample index and by
    rank. The swaps help if a rank has few samples of similar cost, which the greedy rule leaves uneven.

    Args:
        costs: (n,) costs, as whole numbers.
        ranks: number of ranks.
        tokens: (n,) tokens, needed with `cap`.
        cap: maximum tokens of a rank; a rank without room is skipped.

    Raises:
        PlanError: there are no ranks, a sample exceeds the cap, or no rank has room for a sample.
    """
    if ranks < 1:
        raise PlanError(f"{ranks} ranks.", "At least one is needed.")
    work = np.asarray(costs, dtype=np.int64)
    order = np.argsort(-work, kind="stable")
    plan = np.empty(len(work), dtype=np.int64)
    if cap is not None:
        held = np.asarray(tokens, dtype=np.int64)
        return _swapped(work, _longest_first_capped(work, order, held, ranks, cap), ranks, held, cap)
    heap = [(0, rank) for rank in range(ranks)]
    chosen: list[int] = []
    replace = heapq.heapreplace
    for cost in work[order].tolist():
        load, rank = heap[0]
        replace(heap, (load + cost, rank))
        chosen.append(rank)
    plan[order] = chosen
    return _swapped(work, plan, ranks)


def _swapped(work: Ints, plan: Ints, ranks: int, tokens: Ints | None = None, cap: int | None = None) -> Ints:
    """Improves a plan in rounds: each of the fullest ranks exchanges one sample with one of the emptiest, or gives it
    one.

    A swap is made only if it lowers the higher load of both ranks and keeps both within the cap, so no round makes the
    plan worse. It ends when no rank is more than LEVEL above the best possible load.
    """
    found, done = plan.copy(), loads(work, plan, ranks)
    held = loads(tokens, plan, ranks) if tokens is not None else np.zeros(ranks, dtype=np.int64)
    least = max(int(work.max(initial=0)), -(-int(work.sum()) // ranks))
    for turn in range(ROUNDS):
        falling = np.argsort(-done, kind="stable")
        full = falling[: min(ranks // 2, int((done > least * (1 + LEVEL)).sum()))]
        if not len(full):
            break
        spare = np.roll(falling[::-1][: max(len(full), min(ranks // 2, ROUNDS))], turn)[: len(full)]
        inside = _members(work, found, ranks)
        ours, theirs = inside[full], inside[spare]
        size, room = np.append(work, 0), np.append(tokens if tokens is not None else np.zeros_like(work), 0)
        moved = size[ours][:, :, None] - size[theirs][:, None, :]
        gap = done[full] - done[spare]
        left = np.abs(gap[:, None, None] - 2 * moved)
        if cap is not None:
            carried = room[ours][:, :, None] - room[theirs][:, None, :]
            tight = (held[spare][:, None, None] + carried > cap) | (held[full][:, None, None] - carried > cap)
            left = np.where(tight, gap[:, None, None], left)
        best = left.reshape(len(full), -1).argmin(axis=1)
        rows = np.arange(len(full))
        better = left.reshape(len(full), -1)[rows, best] < gap
        give, take = ours[rows, best // theirs.shape[1]], theirs[rows, best % theirs.shape[1]]
        for samples, to in ((give, spare), (take, full)):
            real = better & (samples < len(work))
            found[samples[real]] = to[real]
        done = loads(work, found, ranks)
        held = loads(tokens, found, ranks) if tokens is not None else held
    return found


def _members(work: Ints, plan: Ints, ranks: int) -> Ints:
    """Lists the cheapest samples of every rank, at most MEMBERS, padded with n; (ranks, k)."""
    order = np.lexsort((work, plan))
    counts = np.bincount(plan, minlength=ranks)
    within = np.arange(len(plan)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.full((ranks, min(MEMBERS, int(counts.max(initial=0))) + 1), len(plan), dtype=np.int64)
    near = within < found.shape[1] - 1
    found[plan[order][near], within[near]] = order[near]
    return found


def _longest_first_capped(work: Ints, order: Ints, tokens: Ints, ranks: int, cap: int) -> Ints:
    plan = np.empty(len(work), dtype=np.int64)
    heap = [(0, rank) for rank in range(ranks)]
    room = [cap] * ranks
    for sample, cost, length in zip(order.tolist(), work[order].tolist(), tokens[order].tolist(), strict=True):
        passed: list[tuple[int, int]] = []
        while heap and room[heap[0][1]] < length:
            passed.append(heapq.heappop(heap))
        if not heap:
            raise PlanError(
                f"sample {sample} has {length} tokens; no rank has that many left of {cap}.",
                "Lower train.batch, raise the token cap, or split the sample over ranks (sequence plans).",
            )
        load, rank = heap[0]
        heapq.heapreplace(heap, (load + cost, rank))
        room[rank] -= length
        plan[sample] = rank
        for entry in passed:
            heapq.heappush(heap, entry)
    return plan


def padded(lengths: npt.ArrayLike, ranks: int, cost: BalanceCost) -> Ints:
    """Assigns padded batches optimally: a rank with k samples and a longest sample of m tokens costs k * cost(m); (n,)
    ranks.

    It searches for the lowest feasible bound. For a bound T, the longest remaining sample determines the number of
    samples on its rank, and the next longest samples fill the rank. No other filling leaves a better remainder.
    """
    long = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-long, kind="stable")
    each = cost.of(long[order])
    low, high = int(each.max(initial=0)), int(each.max(initial=0)) * max(1, len(long))
    while low < high:
        middle = (low + high) // 2
        if len(_filled(each, middle)) <= ranks:
            high = middle
        else:
            low = middle + 1
    plan = np.empty(len(long), dtype=np.int64)
    for rank, (start, end) in enumerate(_filled(each, low)):
        plan[order[start:end]] = rank
    return plan


def _filled(each: Ints, bound: int) -> list[tuple[int, int]]:
    """Cuts descending costs into ranges, each filled up to the bound."""
    stretches: list[tuple[int, int]] = []
    start = 0
    while start < len(each):
        fits = bound // int(each[start]) if each[start] else len(each)
        stretches.append((start, min(len(each), start + fits)))
        start += fits
    return stretches


def near_holders(holders: npt.ArrayLike, plan: npt.ArrayLike, sizes: npt.ArrayLike, ranks: int, per_node: int) -> Ints:
    """Renames the plan's ranks so that the most bytes stay on their node; (n,) ranks.

    Ranks are equal, so any rank can get any share of the work. The renaming solves a transportation problem exactly.

    Args:
        holders: (n,) the rank that currently holds each sample.
        plan: (n,) the rank that computes each sample.
        sizes: (n,) bytes of each sample.
        ranks: number of ranks.
        per_node: number of consecutive ranks on a node.
    """
    from scipy.optimize import linear_sum_assignment  # the import takes half a second, which a single node avoids

    nodes = -(-ranks // per_node)
    held = np.zeros((ranks, nodes), dtype=np.int64)
    np.add.at(held, (np.asarray(plan), np.asarray(holders) // per_node), np.asarray(sizes))
    _, renamed = linear_sum_assignment(-np.repeat(held, per_node, axis=1)[:, :ranks])
    return renamed[np.asarray(plan)]


def loads(costs: npt.ArrayLike, plan: npt.ArrayLike, ranks: int) -> Ints:
    """Sums the cost of every rank, (ranks,)."""
    found = np.zeros(ranks, dtype=np.int64)
    np.add.at(found, np.asarray(plan), np.asarray(costs, dtype=np.int64))
    return found
