"""Micro-batches that take long and short sequences together: best-fit decreasing, as in FlexSP's release.

Cuts of the sorted batch never let a short sequence use the memory that long ones leave, which costs micro-batches if
sequences are large compared with a group: of lengths 6, 6, 4, 4 in groups of 10 tokens cuts make three, packing makes
two. A sequence opens a group of the least degree that holds it, at least of a floor; with a floor that holds the
longest all groups have one degree. Groups of like time then share a micro-batch (first-fit decreasing height over the
ranks). Few sequences are sometimes quicker by first fit, which leaves other rooms. And where groups are not full, it is
quicker to spread the sequences evenly over as many groups as that takes (longest processing time first).
"""

import heapq
import math
from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from learning.planning.sequence_cost import Ints
from learning.planning.sequence_fill import Filled, Load

SHARES = (1.0, 0.9, 0.7, 0.5)
"""Shares of a group's memory up to which it is packed: less is more micro-batches of evener groups."""


@dataclass(slots=True)
class Bin:
    """A group as it is packed."""

    kind: int
    """Index of its degree."""
    members: list[int]
    work: float
    """Milliseconds of its sequences."""


def packed(load: Load, ranks: int, floor: int, share: float) -> list[list[Bin]]:
    """Packs the groups of every micro-batch, the slowest first; each sequence fits on a group.

    Args:
        load: the sequences.
        ranks: how many there are.
        floor: the kind of the least degree that a group has.
        share: of its memory that a group is filled to, if its sequences leave the choice.
    """
    bins = sorted(_bins(load, floor, share), key=lambda one: -one.work)
    made: list[list[Bin]] = []
    left: list[int] = []
    first = [0] * len(load.degrees)  # the first micro-batch with room for a group; the room left in one never grows
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
    """Packs groups of one degree that holds each sequence, by first fit.

    The longest goes first, into the first micro-batch with room, there to the group with the fewest tokens.
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
    """As `packed`, in so many micro-batches of groups of one degree that holds each sequence: the longest first, each
    to the group with the least work that has room. None if one finds no room so."""
    groups = ranks // load.degrees[kind]
    bins = [Bin(kind, [], 0.0) for _ in range(groups * number)]
    ready = [(0.0, place, load.room[kind]) for place in range(len(bins))]  # work, number and room
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
    """Computes a lower bound of such a packing's time: every rank as busy as any other, or the longest alone."""
    work = load.added[:, floor:] * np.array(load.degrees[floor:])
    rooms = np.array(_rooms(load, _kinds(load, floor), share)) / np.array(load.degrees)
    number = max(1, math.ceil(int(load.tokens.sum()) / (ranks * float(rooms[floor:].max())) - 1e-9))
    alone = load.added[0, floor:].min()
    return max(load.fixed + float(alone), load.fixed * number + float(work.min(axis=1).sum()) / ranks)


def filled(load: Load, ranks: int, groups: list[Bin]) -> tuple[Ints, Filled]:
    """Fills a packed micro-batch: its sequences, longest first, the group of each, and idle ranks."""
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
    ready: list[tuple[int, int]] = []  # room and number of the bins with room, rising
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
    """Computes the tokens that groups of each degree are filled with: the share, or the longest that opens one."""
    longest = [int(load.tokens[kinds == kind].max(initial=0)) for kind in range(len(load.degrees))]
    return [max(int(share * room), most) for room, most in zip(load.room, longest, strict=True)]
