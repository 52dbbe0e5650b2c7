"""The loss of a method, as a function of the log probabilities of a step's target tokens; it knows no network.

The parent's log probabilities are computed by the engine itself in one pass over all documents before the first step,
and kept as one number per token: there is no second copy of the weights, whatever their size. A loss that depends on
sums over whole documents, which a plan may place anywhere, takes its gradient by the chain rule, from the sums of a
pass without gradient: sum over the tokens of dL/d(sum) log p.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a stage reads a method's record, which names its objective, and needs no torch for it
    from torch import Tensor

    from learning.checkpoint import State
    from learning.data.documents import Document
    from learning.engines.engine import Batch, Engine, Outputs, Piece
    from learning.job import Job


class Objective(ABC):
    """One method's loss in one training, and what it keeps beside the network; every rank holds one.

    Args:
        job: the training.
        engine: what runs the network.
    """

    each = 1
    """Documents per sample."""
    needs_parent = False
    """Whether log probabilities under the weights before the first step are asked for."""
    needs_sums = False
    """Whether the summed log probability of each document is asked for before every step's gradient."""

    def __init__(self, job: Job, engine: Engine) -> None:
        import torch

        self._job, self._engine = job, engine
        self.counts = torch.zeros(0, dtype=torch.float64)
        """Sums of what was measured on this rank, since the training began or went on."""

    def documents(self, samples: Sequence[Any]) -> Sequence[Document]:
        """What is encoded of these samples from now on: those of sample i are the `each` from i * `each` on."""
        return samples

    def compare(self, piece: Piece, outputs: Outputs) -> None:  # noqa: B027  (only a critic asks)
        """Handed, if `needs_parent`, each piece of the pass before the first step."""

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:  # noqa: B027  (imitation has no parent)
        """Handed, for every set of documents, how many targets each has and, if `needs_parent`, the log probability
        of each under the weights as they are, (n,) in their order, else nothing."""

    def start(self) -> None:  # noqa: B027  (most have nothing to learn first)
        """Called before every step: what must come before the policy moves, and after a training was resumed."""

    def weigh(self, sums: Tensor, documents: Tensor) -> Tensor:
        """Handed, if `needs_sums`, before a step's gradient; returns the step's loss.

        Args:
            sums: (n,) summed log probability of each document of the step.
            documents: (n,) their numbers among all.
        """
        raise NotImplementedError

    @abstractmethod
    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """What a piece adds to its step's loss; of a method that was handed the sums only the gradient counts."""

    def zero(self) -> None:  # noqa: B027  (most have no weights)
        """Forgets gradients of its own weights."""

    def update(self, rate: float) -> float:
        """Moves its own weights with the policy's rate; the norm of their gradient."""
        return 0.0

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """What the sums of `counts` over all ranks say."""
        return {}

    def measures(self, counts: Tensor) -> dict[str, float]:
        """What the sums that some steps added to `counts`, over all ranks, say of these steps; columns of the lake's
        table `training_steps` by their names, anything else by its own. What they do not say is left out."""
        return {}

    def state(self) -> State:
        """What it keeps beside the network, to be saved and loaded in place."""
        return {}

    def restored(self, step: int) -> None:  # noqa: B027
        """Goes on from what was loaded into `state` after so many steps."""

    def masters(self) -> State:
        """Weights of its own in fp32 that its next training is to find beside the policy's; all ranks call it."""
        return {}

    def write(self, folder: Path) -> None:  # noqa: B027
        """Writes what it keeps beside the weights; all ranks call it."""
