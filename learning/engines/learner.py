"""The seam between the training loop and what is trained.

The loop (`learning.trainer`) knows which sample comes when, the steps, the learning rate, progress and checkpoints. A
learner knows the network, the loss of a batch and the optimiser. Every rank holds one and calls it in the same order.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from learning.checkpoint import State
from schemas.failure import CheckpointError


@dataclass(frozen=True, slots=True)
class Draw:
    """One sample of a batch."""

    position: int
    """Its place in the sampler's stream; with the job's seed, the seed of all that is random about it."""
    sample: int
    """Its index among the job's samples."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one optimiser step gave."""

    loss: Tensor
    """This rank's part of the batch's loss, detached; the sum over the ranks is the loss."""
    norm: float
    """Norm of the whole gradient before clipping; if it is not finite, nothing was moved."""
    samples: tuple[int, ...]
    """The samples that this rank trained on; of ranks that share one, the first names it."""


class Learner(ABC):
    """One rank's share of a training."""

    report_every = 1
    """Steps from one report of the loss to the next; a report makes the ranks wait for each other."""

    @abstractmethod
    def prepare(self, draws: Sequence[Draw]) -> Any:
        """Begins to make the batch of these draws, the same on every rank; called one step ahead of `step`."""

    @abstractmethod
    def step(self, batch: Any, rate: float) -> Taken:
        """One optimiser step at a learning rate, on a batch that `prepare` began."""

    @abstractmethod
    def state(self) -> State:
        """What a training goes on from: weights and moments in fp32, as this rank holds them; also loaded in place."""

    @abstractmethod
    def restored(self, step: int) -> None:
        """Goes on from what was loaded into `state`, which was saved after so many steps."""

    def renew(self, samples: Sequence[Any], screenshots: Path) -> None:
        """Goes on with these samples instead, and compares with the policy as it is now; between two steps.

        Raises:
            CheckpointError: this learner cannot.
        """
        raise CheckpointError(
            f"{type(self).__name__} cannot train on what comes while it trains.", "Set train.stream.on=false."
        )

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Writes the weights into a copy of the parent's other files; rank 0 writes, all ranks call it."""

    def numbers(self) -> dict[str, float]:
        """What was measured beside the loss since the (last) start, over all ranks; all call it once, at the end."""
        return {}

    def close(self) -> None:  # noqa: B027  (most learners hold nothing)
        """Lets go of threads and the like."""
