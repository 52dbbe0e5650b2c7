"""Defines the interface between a method and the network that it trains.

An engine runs a network for training: it encodes documents, computes the log probability of every target token and the
hidden state before it, gathers gradients, makes steps, and keeps its state. An engine does not depend on the method,
and an objective (`learning.algorithms.objective`) does not depend on the network. Every rank has one engine and calls
it in the same order.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from learning.algorithms.method import Optimizer
from learning.checkpoint import State
from learning.data.documents import Document
from learning.job import Job

Piece = Any
"""One forward pass of this rank, as its engine encodes it."""


@dataclass(frozen=True, slots=True)
class SampleRef:
    """One sample of a batch."""

    position: int
    """Position in the sampler's stream; with the job's seed, it seeds all randomness of the sample."""
    sample: int
    """Index among the job's samples or, for an engine, among its documents."""


@dataclass(slots=True)
class Batch:
    """One optimiser step's work on this rank."""

    documents: list[int]
    """The documents of the whole step, by their number in the step."""
    targets: int
    """Number of the step's targets, the divisor of a sum over them.

    For the small policy's supervised samples, whose questions differ between draws, it is the number of samples.
    """
    own: list[int]
    """Documents on which this rank trains; if ranks share a document, only the first rank lists it."""
    pieces: Sequence[Piece]
    tokens: float = 0.0
    """Number of tokens that the network reads, including screens: this rank's part, or the whole step on one rank.

    Tokens that several sequences share count for each of them.
    """
    operations: float = 0.0
    """Floating-point operations of the network for the step, forward and backward: this rank's part; 0 if they are not
    counted."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Results of a forward pass of a piece; m is the number of its targets."""

    logprobs: Tensor
    """(m,) log probabilities, in at least fp32, of logits divided by the document's temperature."""
    hidden: Tensor
    """(m, width) hidden states of the tokens before the targets."""
    weights: Tensor
    """(m,) weight of each target; 1 except for the small policy's questions and words of screens."""
    tokens: Tensor
    """(m,) number of each target among those of all documents; -1 for documents with questions."""
    rows: Tensor
    """(m,) number of each target's document in the step; -1 for documents with questions."""
    entropy: Tensor | None = None
    """(k,) entropies in nats, without gradient, of the distributions of the targets; None if not computed."""
    auxiliary: Tensor | None = None
    """() an additional loss term of the network; it is not reported."""
    screens: Tensor | None = None
    """(screens, tokens, width) encoded screens of a piece with questions about rendered pages."""
    known: Tensor | None = None
    """(screens, tokens, width) the same before the last text layer."""
    gaze: Tensor | None = None
    """(j,) log share of attention of the text tokens of such a piece at the places where they should look."""
    copied: Tensor | None = None
    """(c,) log probability of each letter of such a piece, of a text token whose reading head only looks there."""


class TrainedNetwork(ABC):
    """One rank's share of a network with gradient and optimiser; all ranks call every method.

    Args:
        job: the parent and the training's settings. rank, world: this rank, and the number of ranks.
    """

    device = torch.device("cpu")
    dtype = torch.float32
    """Type of log probabilities."""

    def __init__(self, job: Job, rank: int, world: int) -> None:
        self._job, self.rank, self.world = job, rank, world

    @abstractmethod
    def zero(self) -> None:
        """Clears the gradients."""

    @abstractmethod
    def norm(self) -> float:
        """Sums the gradient over the ranks; returns its norm. Called before `step`."""

    @abstractmethod
    def step(self, rate: float) -> None:
        """Makes one step at a learning rate."""

    @abstractmethod
    def state(self) -> State:
        """Returns this rank's part of the training state, weights and moments in fp32; to be saved and loaded in
        place."""

    def weights(self) -> State:
        """Returns all weights, named `model.` and the name without adapters, and the moments; to be loaded in place."""
        return self.state()

    def masters(self) -> State:
        """Returns the weights to be saved for the next training, with adapters merged in, and the moments."""
        return self.weights()

    @abstractmethod
    def restored(self, steps: int) -> None:
        """Resumes at this step, after `state` or `weights` was loaded."""

    def settle(self) -> None:  # noqa: B027  (most gather nothing)
        """Frees the weights that were gathered for passes without gradient; called after such passes."""


class Body(TrainedNetwork):
    """Separate network of a critic."""

    @abstractmethod
    def hidden(self, piece: Piece) -> Tensor:
        """Computes the hidden states of the tokens before the piece's targets, (m, width)."""

    @abstractmethod
    def snapshot(self) -> list[Tensor]:
        """Copies the weights."""

    @abstractmethod
    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Restores a copy; `steps` is the number of steps made since the network was created."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Returns the whole weights by name; needed on rank 0 only."""


class Engine(TrainedNetwork):
    """One rank's share of a network that is trained.

    Args:
        job: the parent and the training's settings. rank, world: this rank, and the number of ranks.

    Raises:
        CheckpointError: the parent cannot be loaded.
    """

    optimizer: ClassVar[Optimizer]
    """Optimiser, which selects the learning rates."""
    peak_operations: float | None = None
    """Peak floating-point operations per second of this rank's device; None if unknown."""
    report_every = 1
    """Steps between two reports of the loss; a report makes the ranks wait for each other."""

    @abstractmethod
    def encode(self, documents: Sequence[Document], screenshots: Path, numbered: bool = False) -> list[int]:
        """Stores documents of one kind; returns the number of targets of each, 0 for a document that cannot be drawn.

        Args:
            documents: the samples or rollouts to encode.
            screenshots: the file that holds their screens.
            numbered: whether each target needs a fixed number. Then the small policy also encodes a sample always in
                the same way, without shifting screens or drawing other questions.

        Raises:
            FlywheelError: a document cannot be encoded.
        """

    @abstractmethod
    def prepare(self, chosen: Sequence[SampleRef]) -> Any:
        """Starts to make the batch of these documents, the same on every rank; called one step ahead."""

    @abstractmethod
    def ready(self, prepared: Any) -> Batch:
        """Returns the batch that `prepare` started."""

    @abstractmethod
    def forward(self, piece: Piece) -> Outputs:
        """Runs one forward pass, with gradient if gradients are enabled."""

    def lengths(self, document: int) -> tuple[int | None, int | None]:
        """Counts the tokens of a document's thought and of its whole reply; None if missing or not counted."""
        return None, None

    def sync(self, last: bool) -> None:
        """Announces a piece whose gradient follows; `last` marks the last one of its step."""

    def update(self, rate: float) -> float | Tensor:
        """Makes one optimiser step on the ranks' summed gradient; returns the gradient's norm, perhaps as () on the
        device. An unsound gradient changes no weight."""
        norm = self.norm()
        if math.isfinite(norm):
            self.step(rate)
        return norm

    @abstractmethod
    def body(self, weights: Mapping[str, Tensor]) -> Body:
        """Makes a network for a critic with these weights, or with the parent's weights if none are given."""

    @property
    def moments_kind(self) -> str:
        """Names the optimiser and the number format of the moments; a parent's moments are loaded only if both are
        equal."""
        return self.optimizer

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained in place of the weights."""
        return False

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Writes the weights into a folder with a copy of the parent's other files, which all ranks can access; all
        ranks call it."""

    def parts(self, documents: Sequence[int], size: int) -> list[Sequence[int]]:
        """Divides documents into parts of `size` for passes without a step."""
        return [documents[start : start + size] for start in range(0, len(documents), size)]

    def read(self, documents: Sequence[int], size: int | None = None) -> Iterator[Piece]:
        """Yields this rank's pieces of `size` documents at a time; every rank iterates to the end."""
        parts = self.parts(documents, size or self._job.train.batch)
        chosen = [[SampleRef(int(one), int(one)) for one in part] for part in parts]
        ahead = self.prepare(chosen[0]) if chosen else None
        for number in range(len(chosen)):
            batch = self.ready(ahead)
            if number + 1 < len(chosen):
                ahead = self.prepare(chosen[number + 1])
            yield from batch.pieces

    def sum(self, values: Tensor) -> Tensor:
        """Returns the sum over the ranks, on every rank."""
        values = values.to(self.device)
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def close(self) -> None:
        """Releases threads and other resources."""
