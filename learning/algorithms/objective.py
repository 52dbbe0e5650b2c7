"""Defines objectives: a method's loss as a function of the log probabilities of a step's target tokens.

An objective does not depend on the network. Before the first step, the engine computes the parent's log probabilities
in one pass over all documents. They are kept as one number per token, so no second copy of the weights is needed. A
loss may depend on sums over whole documents, which a plan may place on any rank. Its gradient then follows by the chain
rule from the sums of a pass without gradient: the sum of dL/d(sum) log p over the tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a stage reads a method's record, which names its objective, without loading torch
    from torch import Tensor

    from learning.checkpoint import State
    from learning.data.documents import Document
    from learning.engines.engine import Batch, Engine, Outputs, Piece
    from learning.job import Job


class Objective(ABC):
    """The loss of a method in one training, and its state outside the network; every rank has one.

    Args:
        job: the training.
        engine: runs the network.
    """

    each = 1
    """Documents per sample."""
    needs_parent = False
    """Whether the engine computes log probabilities under the weights before the first step."""
    needs_sums = False
    """Whether the engine sums the log probabilities of each document before every step's gradient."""

    def __init__(self, job: Job, engine: Engine) -> None:
        import torch

        self._job, self._engine = job, engine
        self.counts = torch.zeros(0, dtype=torch.float64)
        """Sums measured on this rank since the training began or was resumed."""

    def documents(self, samples: Sequence[Any]) -> Sequence[Document]:
        """Returns the documents of these samples; sample i has the `each` documents from index i * `each` on."""
        return samples

    def compare(self, piece: Piece, outputs: Outputs) -> None:  # noqa: B027  (only a critic asks)
        """Receives, if `needs_parent`, each piece of the pass before the first step."""

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:  # noqa: B027  (imitation has no parent)
        """Receives the number of targets of each document, once for every set of documents.

        If `needs_parent`, `parent` holds the log probability of each target under the current weights, (n,) in the
        targets' order; otherwise it is empty.
        """

    @property
    def measurement(self) -> str:
        """Names a measurement with which the next `start` begins, and which may take long; empty if there is none."""
        return ""

    def start(self) -> None:  # noqa: B027  (most have nothing to learn first)
        """Prepares a step: called before every step and after a training was resumed."""

    def weigh(self, sums: Tensor, documents: Tensor) -> Tensor:
        """Receives, if `needs_sums`, the documents' sums before a step's gradient; returns the step's loss.

        Args:
            sums: (n,) summed log probability of each document of the step.
            documents: (n,) numbers of the step's documents among all documents.
        """
        raise NotImplementedError

    @abstractmethod
    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """Computes a piece's share of its step's loss; with `needs_sums`, only the gradient matters."""

    def zero(self) -> None:  # noqa: B027  (most have no weights)
        """Clears the gradients of the objective's own weights."""

    def update(self, rate: float) -> float:
        """Updates the objective's own weights with the policy's rate; returns the norm of their gradient."""
        return 0.0

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """Computes metrics from the sums of `counts` over all ranks."""
        return {}

    def measures(self, counts: Tensor) -> dict[str, float]:
        """Computes metrics of some steps from the steps' contribution to `counts`, over all ranks.

        Keys are columns of the lake's table `training_steps`, or names of the method's own. Unknown metrics are left
        out.
        """
        return {}

    def state(self) -> State:
        """Returns the tensors that the objective keeps outside the network, to be saved and loaded in place."""
        return {}

    def restored(self, step: int) -> None:  # noqa: B027
        """Resumes at this step, after `state` was loaded."""

    def masters(self) -> State:
        """Returns the objective's own weights in fp32, to be saved for the next training; all ranks call it."""
        return {}

    def write(self, folder: Path) -> None:  # noqa: B027
        """Writes the objective's own weights into the checkpoint; all ranks call it."""
