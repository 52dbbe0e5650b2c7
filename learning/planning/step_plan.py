"""Plans one optimiser step: micro-batches, the ranks that share their samples, the encoding rank of each screen.

Every rank computes the same plan from lengths only, so each rank fetches and decodes only its own part. The work of the
vision tower and of the language model is balanced separately (`learning.planning.balance`); a sequence-parallel group
shares a sample that is too long for one rank (`learning.planning.sequence_plan`). Samples that begin alike go to one
rank, which computes their opening once (`learning.planning.alike`). The tower's outputs for a screen go directly to the
ranks that hold the screen's tokens. The module does not import torch.
"""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from learning.planning.alike import cuts
from learning.planning.balance import Ints, loads, longest_first, near_holders
from learning.planning.sequence_plan import ClusterCost, Group, plan, total
from learning.planning.step_rules import Rules, SampleLengths, ScreenSpan, StepWork
from schemas.failure import PlanError


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples whose gradient is computed together, over all ranks."""

    groups: tuple[Group, ...]
    """Groups that together have every rank once; a group without samples still takes part in the collectives."""
    encoders: tuple[int, ...]
    """Rank that encodes each screen of `encoded`."""

    @property
    def samples(self) -> tuple[int, ...]:
        """Lists the samples of all groups, in order."""
        return tuple(sorted(sample for group in self.groups for sample in group.sequences))


@dataclass(frozen=True, slots=True)
class Fragments:
    """Screens of a micro-batch, cut at the borders of the ranks' stretches of tokens; each field is (n,)."""

    before: Ints
    """Rank that encodes each fragment."""
    after: Ints
    """Rank that holds each fragment's tokens."""
    sizes: Ints
    """Number of tokens."""


def plan_step(items: Sequence[SampleLengths], rules: Rules) -> list[MicroBatch]:
    """Plans the micro-batches of one step.

    Raises:
        PlanError: a sample fits on no rank and no group of ranks; the message names it.
    """
    if rules.cluster is not None and rules.ranks > 1:
        grouped = _fastest(items, rules, rules.cluster)
    else:
        grouped = _alone(items, rules)[0] if rules.level else _in_turn(items, rules)
    return plan_of(grouped, items, rules)


def plan_of(grouped: Sequence[tuple[Group, ...]], items: Sequence[SampleLengths], rules: Rules) -> list[MicroBatch]:
    """Makes the plan with these groups in each micro-batch, and distributes their screens over all ranks."""
    made: list[MicroBatch] = []
    for groups in grouped:
        screens = [(sample, items[sample].screens[number]) for sample, number in encoded(groups, items)]
        encoders = _encoders([piece.patches for _, piece in screens], rules)
        made.append(MicroBatch(_renamed(groups, screens, encoders, rules), tuple(encoders.tolist())))
    return made


def encoded(groups: Sequence[Group], items: Sequence[SampleLengths]) -> list[tuple[int, int]]:
    """Lists the screens that a micro-batch encodes: each one's sample and number in it, in this order.

    A screen that several samples of a single rank show (`ScreenSpan.name`) is encoded once, for the first of them.
    """
    found = list[tuple[int, int]]()
    for group in groups:
        known = set[Hashable]()
        for sample in sorted(group.sequences):
            for number, screen in enumerate(items[sample].screens):
                if group.degree > 1 or screen.name is None or screen.name not in known:
                    known.add(screen.name)
                    found.append((sample, number))
    return sorted(found)


def check_plan(
    batches: Sequence[MicroBatch], items: Sequence[SampleLengths], ranks: int, degrees: Sequence[int]
) -> None:
    """Raises `PlanError` unless every sample occurs once, every rank is in one group, and every degree is legal."""
    seen = sorted(sample for batch in batches for sample in batch.samples)
    if seen != list(range(len(items))):
        raise PlanError(f"samples {seen} are planned, {len(items)} are in the batch.", "Plan each of them once.")
    for batch in batches:
        held = sorted(rank for group in batch.groups for rank in range(group.first, group.first + group.degree))
        if held != list(range(ranks)):
            raise PlanError(f"groups of ranks {held} on {ranks} ranks.", "Every rank belongs to one group.")
        for group in batch.groups:
            if group.degree not in degrees or group.first % group.degree:
                raise PlanError(
                    f"a group of {group.degree} ranks from {group.first} on.",
                    f"The model's heads and the ranks allow groups of {', '.join(map(str, degrees))}, aligned.",
                )


def fragments(batch: MicroBatch, items: Sequence[SampleLengths]) -> Fragments:
    """Computes how the outputs of the vision tower are cut, in the order of the encoded screens and their tokens."""
    place: dict[int, tuple[Group, int]] = {}
    for group in batch.groups:
        for sample, start in zip(sorted(group.sequences), edges_of(group, items), strict=False):
            place[sample] = (group, start)
    cut: list[tuple[int, int, int]] = []
    for (sample, number), encoder in zip(encoded(batch.groups, items), batch.encoders, strict=True):
        group, offset = place[sample]
        piece, stretch = items[sample].screens[number], stretch_of(group, items)
        start, end = offset + piece.start, offset + piece.start + piece.tokens
        borders = [start, *range((start // stretch + 1) * stretch, end, stretch), end]
        for left, right in pairwise(borders):
            cut.append((encoder, group.first + left // stretch, right - left))
    return Fragments(*np.array(cut, dtype=np.int64).reshape(-1, 3).T.copy())


def edges_of(group: Group, items: Sequence[SampleLengths]) -> tuple[int, ...]:
    """Lists, in order, the starts of a group's samples, the end of the last sample, and the end of the padding, if any.

    A group without samples holds one token of padding per rank.
    """
    edges = [0]
    for sample in sorted(group.sequences):
        edges.append(edges[-1] + items[sample].tokens)
    whole = max(group.degree, -(-edges[-1] // group.degree) * group.degree)
    return (*edges, whole) if whole > edges[-1] else tuple(edges)


def stretch_of(group: Group, items: Sequence[SampleLengths]) -> int:
    """Counts the tokens that every rank of a group holds."""
    return edges_of(group, items)[-1] // group.degree


def digest(batches: Sequence[MicroBatch]) -> int:
    """Computes a number below 2^62 that is equal on two ranks if their plans are."""
    return int.from_bytes(hashlib.sha256(repr(batches).encode()).digest()[:8], "big") >> 2


def _fastest(items: Sequence[SampleLengths], rules: Rules, cluster: ClusterCost) -> list[tuple[Group, ...]]:
    """Makes groups of mixed degree, or puts each sample on a single rank if that is faster, as samples share tokens."""
    made = plan([item.tokens for item in items], rules.ranks, cluster)
    divided = [batch.groups for batch in made]
    if not rules.level or not any(item.begins for item in items):
        return divided
    try:
        alone, costs = _alone(items, rules)
    except PlanError:  # a sample needs several ranks
        return divided
    screens = [items[sample].screens[number] for groups in divided for sample, number in encoded(groups, items)]
    seen = int(rules.vision.of([one.patches for one in screens]).sum()) // rules.ranks
    longest = max(item.tokens for item in items)
    pace = float(cluster.milliseconds(longest, 1)) / int(rules.language.of(longest))
    together = pace * costs + cluster.fixed * len(alone) < total(made) + pace * seen
    return alone if together else divided


def _alone(items: Sequence[SampleLengths], rules: Rules) -> tuple[list[tuple[Group, ...]], int]:
    """Puts every sample on a single rank, in as few micro-batches as its limit allows, with equal work.

    Of the cuts of units, it takes the one with the fewest micro-batches, then the one with the smallest costs. Returns
    the micro-batches and their costs (`_packed`).
    """
    work, best = rules.work(items), None
    for parts in cuts(work.costs, work.sizes, work.most):
        found = _packed(parts, work, items, rules, None if best is None else len(best[0]))
        if found is not None and (best is None or (len(found[0]), found[1]) < (len(best[0]), best[1])):
            best = found
    assert best is not None  # the first cut has no limit
    return best


Packed = tuple[list[tuple[Group, ...]], int]
"""Micro-batches and their costs."""


def _packed(
    parts: Ints, work: StepWork, items: Sequence[SampleLengths], rules: Rules, limit: int | None
) -> Packed | None:
    """Puts every part on a single rank; returns the micro-batches and their costs.

    The costs are those of the slowest ranks and, with several ranks, of the screens, which all ranks encode together.
    With several ranks, parts of similar cost are together, as a micro-batch ends with its slowest rank. If a rank has
    no memory for the screens that it encodes, more micro-batches are tried, or that micro-batch is divided.

    Args:
        parts: (n,) number of each sample's part. work, items, rules: the step.
        limit: maximum number of micro-batches, beyond which it returns None; None for no limit.
    """
    ranks, pieces = rules.ranks, int(parts.max(initial=-1)) + 1
    costs, sizes = (one.sums(parts, pieces) for one in (work.costs, work.sizes))
    number = 1 if work.most is None else max(1, -(-int(sizes.sum()) // (work.most * ranks)))
    best: Packed | None = None
    while (limit is None or number <= limit) and (best is None or number < len(best[0])):
        try:
            bins = longest_first(costs, ranks * number, sizes, work.most)[parts]
        except PlanError:
            number += 1
            continue
        each = work.costs.sums(bins, ranks * number)
        order = np.argsort(-each, kind="stable")
        made = [_singles(bins, order[start : start + ranks]) for start in range(0, len(order), ranks)]
        limited = ranks > 1 and rules.memory is not None and rules.memory.room is not None
        fit = _fit(made, work, items, rules) if limited else np.ones(number, dtype=bool)
        spent = np.where(fit, each[order[::ranks]], each[order].reshape(number, ranks).sum(axis=1)).sum()
        made = [one for groups, fits in zip(made, fit, strict=True) for one in ([groups] if fits else _divided(groups))]
        screens = 0 if ranks == 1 else int(work.seen.sums(bins, ranks * number).sum()) // ranks
        if best is None or len(made) < len(best[0]):
            best = made, int(spent) + screens + work.common * len(made)
        number += 1 + number // 8
    return None if best is None or (limit is not None and len(best[0]) > limit) else best


def _divided(groups: Sequence[Group]) -> list[tuple[Group, ...]]:
    """Gives the samples of each rank a micro-batch of their own, which fits wherever their screens are encoded."""
    others = tuple(Group(1, rank, ()) for rank in range(1, len(groups)))
    return [(Group(1, 0, one.sequences), *others) for one in groups if one.sequences]


def _fit(grouped: Sequence[tuple[Group, ...]], work: StepWork, items: Sequence[SampleLengths], rules: Rules) -> Ints:
    """Checks for each micro-batch whether every rank has memory for its samples and for the screens that it encodes."""
    assert rules.memory is not None and work.most is not None
    places = np.empty(len(items), dtype=np.int64)
    for number, groups in enumerate(grouped):
        for group in groups:
            places[list(group.sequences)] = number * rules.ranks + group.first
    read, held = (one.sums(places, len(grouped) * rules.ranks) for one in (work.sizes, work.patches))
    seen = list[Ints]()
    for groups in grouped:
        patches = [items[sample].screens[number].patches for sample, number in encoded(groups, items)]
        seen.append(loads(patches, _encoders(patches, rules), rules.ranks))
    needed = read + rules.memory.patch * (np.concatenate(seen) - held)
    return needed.reshape(len(grouped), rules.ranks).max(axis=1) <= work.most


def _in_turn(items: Sequence[SampleLengths], rules: Rules) -> list[tuple[Group, ...]]:
    """Puts sample i on rank i modulo the ranks; begins a new micro-batch when a rank is full."""
    sizes, most = rules.sizes(items)
    bins = np.empty(len(sizes), dtype=np.int64)
    filled = [(0, 0)] * rules.ranks
    for sample, size in enumerate(sizes.tolist()):
        number, held = filled[sample % rules.ranks]
        if held and most is not None and held + size > most:
            number, held = number + 1, 0
        filled[sample % rules.ranks] = (number, held + size)
        bins[sample] = number * rules.ranks + sample % rules.ranks
    numbers = 1 + max(number for number, _ in filled)
    return [_singles(bins, np.arange(rules.ranks) + number * rules.ranks) for number in range(numbers)]


def _singles(bins: Ints, chosen: Ints) -> tuple[Group, ...]:
    members = [tuple(int(sample) for sample in np.flatnonzero(bins == place)) for place in chosen]
    return tuple(Group(1, rank, samples) for rank, samples in enumerate(members))


def _encoders(patches: list[int], rules: Rules) -> Ints:
    """Chooses the rank of every screen."""
    sizes = np.array(patches, dtype=np.int64)
    if not rules.level:
        return np.arange(len(sizes)) % rules.ranks
    return longest_first(rules.vision.of(sizes), rules.ranks)


def _renamed(
    groups: tuple[Group, ...], screens: list[tuple[int, ScreenSpan]], encoders: Ints, rules: Rules
) -> tuple[Group, ...]:
    """With several nodes, moves groups to the node that encodes most of their screens."""
    if rules.per_node is None or rules.per_node >= rules.ranks or any(group.degree > 1 for group in groups):
        return groups
    rank = {sample: group.first for group in groups for sample in group.sequences}
    held = np.array([rank[sample] for sample, _ in screens], dtype=np.int64)
    sizes = [piece.tokens for _, piece in screens]
    # With an additional entry of 0 bytes for every rank, the renaming of all ranks can be read from the result.
    holders = np.concatenate([encoders, np.zeros(rules.ranks, dtype=np.int64)])
    plan_now = np.concatenate([held, np.arange(rules.ranks)])
    renamed = near_holders(holders, plan_now, [*sizes, *[0] * rules.ranks], rules.ranks, rules.per_node)[len(held) :]
    return tuple(
        sorted((Group(1, int(renamed[group.first]), group.sequences) for group in groups), key=lambda one: one.first)
    )
