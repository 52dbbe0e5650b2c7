"""Fills the given groups of one micro-batch, longest sequence first, then balances the groups' end times.

A mixture is a number of groups of each degree (`learning.planning.sequence_mix` searches for good ones). A group may
stay empty; its ranks then take part in the step's collectives with a token of padding. The module is deterministic and
does not import torch.
"""

import heapq
import math
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
