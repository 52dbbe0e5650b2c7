"""Defines objectives: a method's loss as a function of the log probabilities of a step's target tokens.

An objective does not depend on the network. Before the first step, the engine computes the parent's log probabilities
in one pass over all documents. They are kept as one number per token, so no second copy of the weights is needed. A
loss may depend on sums over whole documents, which a plan may place on any rank. Its gradient then follows by the chain
rule from the sums of a pass without gradient: the sum of dL/d(sum) log p over the tokens.

Computes log probabilities of targets as pure functions of logits.

A coordinate is a bin of the screen. Its target is spread over the neighbouring bins,

    q(k) proportional to exp(-(k - t)^2 / (2 sigma^2)),

where t is the exact place in bins. A near miss costs little, so the loss leads the network to the place. With plain
classes, the network would guess one of 101 unrelated classes. Decoding and text do not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
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


ROWS = 512
"""Number of rows of logits whose entropies are computed at once."""


def soft_bins(places: Tensor, bins: int, sigma: float) -> Tensor:
    """Computes target shares (n, bins) of places (n,) in bins; with sigma 0, the nearest bin has the whole share."""
    distance = torch.arange(bins) - places[:, None]
    if sigma == 0:
        return torch.nn.functional.one_hot(distance.abs().argmin(1), bins).float()
    return (-(distance**2) / (2 * sigma**2)).softmax(-1)


def token_logprobs(logits: Tensor, targets: Tensor, temperatures: Tensor | None = None) -> Tensor:
    """Computes log probs (n,) of (n,) ids under (n, vocabulary) logits, divided by (n,) temperatures if given."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperatures is not None:
        wide = wide / temperatures[:, None].to(wide.dtype)
    return -torch.nn.functional.cross_entropy(wide, targets, reduction="none")


@torch.no_grad()
def entropies(logits: Tensor, temperatures: Tensor | None = None) -> Tensor:
    """Computes entropies (n,), in nats, of (n, vocabulary) logits, divided by (n,) temperatures if given.

    It works in blocks of rows, so that only one block of probabilities is in memory in addition to the logits.
    """
    divisors = temperatures if temperatures is not None else torch.ones(len(logits), device=logits.device)
    found = [
        torch.special.entr((rows.float() / divisor[:, None]).softmax(-1)).sum(-1)
        for rows, divisor in zip(logits.split(ROWS), divisors.float().split(ROWS), strict=True)
    ]
    return torch.cat(found) if found else torch.zeros(0, device=logits.device)


def place_logprobs(logits: Tensor, places: Tensor, first: Tensor, bins: int, sigma: float) -> Tensor:
    """Computes minus the cross entropy against soft bins, (n,): the mean log probability of a place's bins.

    Args:
        logits: (n, vocabulary).
        places: exact targets in bins, (n,).
        first: the token id of each target's bin 0, (n,); the bins of a family have consecutive ids.
        bins: bins per family.
        sigma: spread in bins.
    """
    shares = logits.float().log_softmax(-1).gather(1, first[:, None] + torch.arange(bins))
    return (soft_bins(places, bins, sigma) * shares).sum(-1)
