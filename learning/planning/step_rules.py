"""Lengths of the samples of a step, what they cost and share, and the limits of a micro-batch.

The module does not import torch.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from learning.planning.alike import Amounts
from learning.planning.balance import BalanceCost, Ints
from learning.planning.sequence_plan import ClusterCost
from learning.planning.shared_prompts import LEAST
from schemas.failure import PlanError


@dataclass(frozen=True, slots=True)
class ScreenSpan:
    """A screen's range within a sample's tokens."""

    start: int
    tokens: int
    patches: int
    name: Hashable = None
    """Name of its picture, equal for spans that show the same; None if each span is encoded by itself."""


@dataclass(frozen=True, slots=True)
class SampleLengths:
    """The lengths of one sample of the batch."""

    tokens: int
    screens: tuple[ScreenSpan, ...]
    targets: int = 0
    opening: int = 0
    """Number of tokens before the first one that precedes a target."""
    begins: str = ""
    """Digest of these tokens and their screens, equal for samples that begin alike; empty if the sample shares none."""

    @property
    def patches(self) -> int:
        """Counts the patches of all screens."""
        return sum(screen.patches for screen in self.screens)

    @property
    def shared(self) -> "SampleLengths":
        """Returns the lengths of the opening that samples with the same digest share; empty if they share none."""
        if not self.begins or self.opening < LEAST:
            return SampleLengths(0, ())
        return SampleLengths(self.opening, tuple(one for one in self.screens if one.start < self.opening))


@dataclass(frozen=True, slots=True)
class PieceMemory:
    """Memory of a rank for one micro-batch, in bytes (`learning.planning.memory.piece_memory`)."""

    room: int | None
    """Bytes that are free for a micro-batch; None if its tokens are limited (`Rules.cap`)."""
    token: int
    """Bytes of each token."""
    patch: int
    """Bytes of each patch."""
    target: int
    """Bytes of each target."""
    copied: int = 0
    """Bytes of each token of each sample whose keys and values are copied, since samples share tokens."""

    def of(self, item: SampleLengths) -> int:
        """Computes the bytes of a sample that shares no token."""
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
    """Memory that limits a micro-batch in place of `cap`.

    Without a room, a micro-batch takes at most the memory of `cap` tokens of the sample that needs the most for each.
    So samples that share tokens do not need more for their targets, and for copies of keys and values, than others.
    """
    common: int = 0
    """Number of tokens with which all samples begin, such as those of a system text."""

    def costs(self, items: Sequence[SampleLengths]) -> Ints:
        """Computes each sample's cost on the rank that holds it; a single rank runs both phases."""
        read = self.language.of([item.tokens for item in items])
        return read + self.seen(items) if self.ranks == 1 else read

    def seen(self, items: Sequence[SampleLengths]) -> Ints:
        """Computes the cost of each sample's screens."""
        each = [int(self.vision.of([screen.patches for screen in item.screens]).sum()) for item in items]
        return np.array(each, dtype=np.int64)

    def sizes(self, items: Sequence[SampleLengths]) -> tuple[Ints, int | None]:
        """Computes each sample's size, and the maximum size of a rank's samples; tokens, bytes or both are limited.

        A sample that fits alone never exceeds the maximum, as it copies no keys and values then.

        Raises:
            PlanError: a sample exceeds the maximum.
        """
        limits = self._limits(items)
        sizes = (limits.quantities(items) + limits.copies(items)).max(axis=0)
        return sizes if limits.most is None else np.minimum(sizes, limits.most), limits.most

    def work(self, items: Sequence[SampleLengths]) -> "StepWork":
        """Computes what samples take alone, and what they share; raises as `sizes` does.

        A sample's size is the sum of the sizes of three parts: the common tokens, the rest of the opening, and the rest
        of the sample. So it is at least as large as each limited quantity of the whole.
        """
        times = Counter(item.begins for item in items)
        openings = [item.shared if times[item.begins] > 1 else SampleLengths(0, ()) for item in items]
        names = [item.begins if one.tokens else at for at, (item, one) in enumerate(zip(items, openings, strict=True))]
        numbers: dict[Hashable, int] = {}
        units = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
        limits, common = self._limits(items), [SampleLengths(self.common, ())]
        whole, opening, first = (limits.quantities(each) for each in (items, openings, common))
        # keys and values are copied for each sample, and for what is shared itself
        start = int((first + limits.copies(common)).max())
        own = (np.maximum(opening - first, 0) + limits.copies(openings)).max(axis=0)
        rest = (whole - np.maximum(opening, first) + limits.copies(items)).max(axis=0)
        sizes, most = own + rest, None
        if limits.most is not None:
            most = max(1, limits.most - start)
            sizes, own = np.minimum(sizes, most), np.minimum(own, most - 1)  # a sample that takes all of it is alone
        read = int(self.language.of(self.common))
        costs = self.costs(items) - read, np.maximum(self.costs(openings) - read, 0)
        patches, shown = (np.array([one.patches for one in each], dtype=np.int64) for each in (items, openings))
        return StepWork(
            Amounts(*costs, units),
            Amounts(self.seen(items), self.seen(openings), units),
            Amounts(sizes, own, units),
            Amounts(patches, shown, units),
            most,
            read,
        )

    def _limits(self, items: Sequence[SampleLengths]) -> "_Limits":
        memory = self.memory or PieceMemory(None, 0, 0, 0)
        needed, tokens = [memory.of(item) for item in items], [item.tokens for item in items]
        if memory.room is not None:
            if max(needed) > memory.room:
                raise _too_large(needed.index(max(needed)), max(needed), memory.room, memory=True)
            return _Limits(memory, 0, memory.room)
        if self.cap is None:
            return _Limits(memory, 1, None)
        if max(tokens) > self.cap:
            raise _too_large(tokens.index(max(tokens)), max(tokens), self.cap, memory=False)
        densest = max([1, *(-(-size // number) for size, number in zip(needed, tokens, strict=True) if number)])
        return _Limits(memory, densest, self.cap * densest)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What is limited of a rank's samples: tokens and bytes, in a common unit."""

    memory: PieceMemory
    token: int
    """Size of a token if tokens are limited: the most bytes that one of the samples needs for each; 0 if they are
    not."""
    most: int | None
    """Maximum size."""

    def quantities(self, items: Sequence[SampleLengths]) -> Ints:
        """Computes tokens and bytes of samples, (2, n)."""
        each = [(self.token * item.tokens, self.memory.of(item)) for item in items]
        return np.array(each, dtype=np.int64).reshape(-1, 2).T

    def copies(self, items: Sequence[SampleLengths]) -> Ints:
        """Computes what copies of the keys and values of all tokens add to the quantities, (2, n)."""
        return np.array([(0, self.memory.copied * item.tokens) for item in items], dtype=np.int64).reshape(-1, 2).T


@dataclass(frozen=True, slots=True)
class StepWork:
    """What the samples of a step take on single ranks, behind the tokens with which all begin (`Rules.common`)."""

    costs: Amounts
    """Costs on the rank that holds the samples (`Rules.costs`)."""
    seen: Amounts
    """Costs of the screens."""
    sizes: Amounts
    """Bytes or tokens (`Rules.sizes`)."""
    patches: Amounts
    most: int | None
    """Maximum size of a rank's samples."""
    common: int
    """Cost of the tokens with which all samples begin."""


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
