"""Plans one optimiser step: micro-batches, the ranks that share their samples, the encoding rank of each screen.

Every rank computes the same plan from lengths only, so each rank fetches and decodes only its own part. The work of the
vision tower and of the language model is balanced separately (`learning.planning.balance`); a sequence-parallel group
shares a sample that is too long for one rank (`learning.planning.sequence_plan`). The tower's outputs for a screen go
directly to the ranks that hold the screen's tokens. The module does not import torch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from learning.planning.balance import BalanceCost, Ints, loads, longest_first, near_holders
from learning.planning.sequence_plan import ClusterCost, Group, plan
from schemas.failure import PlanError


@dataclass(frozen=True, slots=True)
class ScreenSpan:
    """A screen's range within a sample's tokens."""

    start: int
    tokens: int
    patches: int


@dataclass(frozen=True, slots=True)
class SampleLengths:
    """The lengths of one sample of the batch."""

    tokens: int
    screens: tuple[ScreenSpan, ...]
    targets: int = 0

    @property
    def patches(self) -> int:
        """Counts the patches of all screens."""
        return sum(screen.patches for screen in self.screens)


@dataclass(frozen=True, slots=True)
class PieceMemory:
    """Memory of a rank for one micro-batch, in bytes (`learning.planning.memory.piece_memory`)."""

    room: int
    """Bytes that are free for a micro-batch."""
    token: int
    """Bytes of each token."""
    patch: int
    """Bytes of each patch."""
    target: int
    """Bytes of each target."""

    def of(self, item: SampleLengths) -> int:
        """Computes the bytes of a sample."""
        return self.token * item.tokens + self.patch * item.patches + self.target * item.targets


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of plans, the same on every rank."""

    ranks: int
    vision: BalanceCost
    """Cost of a screen, by its patches."""
    language: BalanceCost
    """Cost of a sample, by its tokens."""
    level: bool = True
    """Whether work is balanced; otherwise, samples and screens go to the ranks in turn."""
    cap: int | None = None
    """Maximum tokens of a rank in a micro-batch."""
    cluster: ClusterCost | None = None
    """Costs of sequence plans; None for no sequence plans."""
    per_node: int | None = None
    """Number of ranks of a node, if there are several nodes."""
    memory: PieceMemory | None = None
    """Memory that limits a micro-batch in place of `cap`."""

    def costs(self, items: Sequence[SampleLengths]) -> Ints:
        """Computes each sample's cost on the rank that holds it; a single rank runs both phases."""
        read = self.language.of([item.tokens for item in items])
        if self.ranks > 1:
            return read
        seen = [int(self.vision.of([screen.patches for screen in item.screens]).sum()) for item in items]
        return read + np.array(seen, dtype=np.int64)

    def sizes(self, items: Sequence[SampleLengths]) -> tuple[Ints, int | None]:
        """Computes each sample's size, and the maximum size of a rank's samples: bytes, or tokens if only those are
        limited.

        Raises:
            PlanError: a sample exceeds the maximum.
        """
        if self.memory is None:
            sizes, most = np.array([item.tokens for item in items], dtype=np.int64), self.cap
        else:
            sizes, most = np.array([self.memory.of(item) for item in items], dtype=np.int64), self.memory.room
        if most is not None and sizes.max() > most:
            raise _too_large(int(sizes.argmax()), int(sizes.max()), most, self.memory is not None)
        return sizes, most


def _too_large(sample: int, size: int, most: int, memory: bool) -> PlanError:
    if memory:
        return PlanError(
            f"sample {sample} takes {size / 2**30:.2f} GiB in a step, and {max(0, most) / 2**30:.2f} GiB are free.",
            "Set train.activation_checkpointing=true, show fewer screenshots (policy.history_images or "
            "policy.live_images), or let `flywheel plan` choose.",
        )
    return PlanError(
        f"sample {sample} has {size} tokens, a rank takes {most}.",
        "Raise train.token_cap, show fewer screenshots (policy.history_images or policy.live_images), or switch "
        "train.sequence_plans on.",
    )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples whose gradient is computed together, over all ranks."""

    groups: tuple[Group, ...]
    """Groups that together have every rank once; a group without samples still takes part in the collectives."""
    encoders: tuple[int, ...]
    """Rank that encodes each screen, in the order of samples."""

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
    shared = rules.cluster is not None and rules.ranks > 1
    return plan_of(_shared(items, rules) if shared else _alone(items, rules), items, rules)


def plan_of(grouped: Sequence[tuple[Group, ...]], items: Sequence[SampleLengths], rules: Rules) -> list[MicroBatch]:
    """Makes the plan with these groups in each micro-batch, and distributes their screens over all ranks."""
    made: list[MicroBatch] = []
    for groups in grouped:
        members = sorted(sample for group in groups for sample in group.sequences)
        screens = [(sample, piece) for sample in members for piece in items[sample].screens]
        encoders = _encoders([piece.patches for _, piece in screens], rules)
        made.append(MicroBatch(_renamed(groups, screens, encoders, rules), tuple(encoders.tolist())))
    return made


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
    """Computes how the outputs of the vision tower are cut, in the order of samples, screens and tokens."""
    place: dict[int, tuple[Group, int]] = {}
    for group in batch.groups:
        for sample, start in zip(sorted(group.sequences), edges_of(group, items), strict=False):
            place[sample] = (group, start)
    cut: list[tuple[int, int, int]] = []
    encoders = iter(batch.encoders)
    for sample in batch.samples:
        group, offset = place[sample]
        stretch = stretch_of(group, items)
        for piece in items[sample].screens:
            encoder, start, end = next(encoders), offset + piece.start, offset + piece.start + piece.tokens
            cuts = [start, *range((start // stretch + 1) * stretch, end, stretch), end]
            for left, right in pairwise(cuts):
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


def _shared(items: Sequence[SampleLengths], rules: Rules) -> list[tuple[Group, ...]]:
    """Makes groups of mixed degree."""
    assert rules.cluster is not None
    return [batch.groups for batch in plan([item.tokens for item in items], rules.ranks, rules.cluster)]


def _alone(items: Sequence[SampleLengths], rules: Rules) -> list[tuple[Group, ...]]:
    """Puts every sample on a single rank, in as few micro-batches as its limit allows, with equal work.

    With several ranks, samples of similar cost are together, as a micro-batch ends with its slowest rank.
    """
    if not rules.level:
        return _in_turn(items, rules)
    costs, (sizes, most) = rules.costs(items), rules.sizes(items)
    number = 1 if most is None else max(1, -(-int(sizes.sum()) // (most * rules.ranks)))
    while True:
        try:
            bins = longest_first(costs, rules.ranks * number, sizes, most)
        except PlanError:
            number += 1
            continue
        work = np.bincount(bins, weights=costs, minlength=rules.ranks * number)
        order = np.argsort(-work, kind="stable")
        made = [_singles(bins, order[start : start + rules.ranks]) for start in range(0, len(order), rules.ranks)]
        if rules.memory is None or rules.ranks == 1 or _all_fit(made, items, rules):
            return made
        number += 1
        if number > len(items):  # a sample alone fits wherever its screens are encoded
            others = tuple(Group(1, rank, ()) for rank in range(1, rules.ranks))
            return [(Group(1, 0, (sample,)), *others) for sample in range(len(items))]


def _all_fit(grouped: Sequence[tuple[Group, ...]], items: Sequence[SampleLengths], rules: Rules) -> bool:
    """Checks whether every rank has memory for its samples and for the screens that it encodes."""
    assert rules.memory is not None
    for groups in grouped:
        patches = [screen.patches for group in groups for one in group.sequences for screen in items[one].screens]
        seen = loads(patches, _encoders(patches, rules), rules.ranks)
        read = np.array([sum(rules.memory.of(items[one]) for one in group.sequences) for group in groups])
        held = np.array([sum(items[one].patches for one in group.sequences) for group in groups])
        if (read + rules.memory.patch * (seen - held)).max() > rules.memory.room:
            return False
    return True


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
