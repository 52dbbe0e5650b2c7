"""Models the cost of groups of ranks that share sequences (FlexSP, arXiv 2412.01523, section 4).

Numbers of equations are the paper's. The module does not import torch.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.failure import PlanError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClusterCost:
    """Costs of a sequence on a group of a degree (eqs. 11 to 14); milliseconds, tokens, MiB."""

    quadratic: float
    """a1, ms per token^2."""
    linear: float
    """a2, ms per token."""
    fixed: float
    """b1 + b2, ms per group and micro-batch."""
    exchanged: float
    """MiB per token that all all-to-alls of a step move, summed over the ranks of the group."""
    bandwidth: tuple[tuple[int, float], ...]
    """All-to-all bandwidth by degree, GB/s; a degree that is not listed costs no communication."""
    token: float
    """MiB of activations per token."""
    states: float
    """MiB of model states on every rank."""
    memory: float
    """MiB of memory of a rank."""
    degrees: tuple[int, ...]
    """Legal degrees, powers of two: they must divide the model's heads."""

    def milliseconds(self, lengths: npt.ArrayLike, degree: int) -> Floats:
        """Computes the milliseconds that each sequence adds to a group of this degree."""
        long = np.asarray(lengths, dtype=np.float64)
        moved = self.exchanged * long / degree * (2**20 / 1e6)
        speed = dict(self.bandwidth).get(degree)
        return (self.quadratic * long**2 + self.linear * long) / degree + (moved / speed if speed else 0.0)

    def capacity(self, degree: int) -> int:
        """Computes the tokens that fit on a group of this degree."""
        return max(0, int((self.memory - self.states) / self.token * degree))

    def least_degree(self, length: int) -> int:
        """Finds the smallest legal degree on which a sequence fits; raises PlanError if there is none."""
        for degree in self.degrees:
            if length <= self.capacity(degree):
                return degree
        raise PlanError(
            f"a sequence of {length} tokens fits on no group: {self.degrees[-1]} ranks hold "
            f"{self.capacity(self.degrees[-1])}.",
            "Use more ranks, shorten the trajectory (policy.history_images or policy.live_images), or recompute "
            "activations.",
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive ranks that share their sequences."""

    degree: int
    first: int
    """First rank of the group, a multiple of the degree."""
    sequences: tuple[int, ...]
    """Indices into the batch."""

    def holds(self, rank: int) -> bool:
        """Checks whether a rank is in the group."""
        return self.first <= rank < self.first + self.degree


@dataclass(frozen=True, slots=True)
class GroupedMicroBatch:
    """Groups that run at the same time and together use every rank; a group may be empty."""

    groups: tuple[Group, ...]
    milliseconds: float
    """Predicted time of the slowest group."""


def legal_degrees(ranks: int, query_heads: int, key_heads: int) -> tuple[int, ...]:
    """Lists the powers of two up to `ranks` that divide the query heads and fit the key heads.

    A degree must be a divisor or a multiple of the number of key heads. Ulysses gives every rank whole heads, and
    repeats key heads if there are fewer than ranks.

    Raises:
        PlanError: the number of ranks is 0 or no power of two.
    """
    if ranks < 1 or ranks & (ranks - 1):
        raise PlanError(f"Sequence plans cannot use {ranks} ranks.", "Use a power of two.")
    powers = [1 << power for power in range(ranks.bit_length())]
    shared = [degree for degree in powers if key_heads % degree == 0 or degree % key_heads == 0]
    return tuple(degree for degree in shared if query_heads % degree == 0)
