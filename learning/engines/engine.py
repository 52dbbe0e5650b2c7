"""The seam between a method and the network that it trains.

An engine runs a network for training: it encodes documents, gives the log probability of every target token and the
hidden state behind it, gathers gradients, steps, and keeps its state. It knows no method; an objective
(`learning.algorithms.objective`) knows no network. Every rank holds one engine and calls it in the same order.
"""

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
    """Its place in the sampler's stream; with the job's seed, the seed of all that is random about it."""
    sample: int
    """Its index among the job's samples; for an engine, among its documents."""


@dataclass(slots=True)
class Batch:
    """One optimiser step's work on this rank."""

    documents: list[int]
    """The documents of the whole step, in the order of their numbers in it."""
    targets: int
    """What a sum over the step's targets is divided by: their number. The small policy's supervised samples, whose
    questions differ from draw to draw, count themselves instead."""
    own: list[int]
    """The documents that this rank trains on; of ranks that share one, the first names it."""
    pieces: Sequence[Piece]
    tokens: float = 0.0
    """Tokens that the network reads, its screens among them: this rank's part, or all of the step's on one rank."""
    operations: float = 0.0
    """Floating-point operations of the network, forward and backward, counted alike; 0 where nobody counts."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What an engine makes of a piece; m is the number of its targets."""

    logprobs: Tensor
    """(m,) in fp32 or better, of logits divided by the document's temperature."""
    hidden: Tensor
    """(m, width) what the network makes of the tokens before them."""
    weights: Tensor
    """(m,) what a target counts; 1 but for the small policy's questions and the words of its screens."""
    tokens: Tensor
    """(m,) the number of each target among those of all documents; of documents with questions -1."""
    rows: Tensor
    """(m,) the number of its document in the step; of documents with questions -1."""
    entropy: Tensor | None = None
    """(k,) in nats, without gradient, of the distributions that targets were chosen from; None where nobody counts."""
    auxiliary: Tensor | None = None
    """() what the network itself adds to the step's loss, of which nothing is reported."""


class Body(ABC):
    """A network of a critic's own, with its gradient and its optimiser; all ranks call every method."""

    @abstractmethod
    def hidden(self, piece: Piece) -> Tensor:
        """What it makes of the tokens before the piece's targets, (m, width)."""

    @abstractmethod
    def zero(self) -> None:
        """Forgets gradients."""

    @abstractmethod
    def norm(self) -> float:
        """The norm of the gradient over all ranks, which `step` will follow."""

    @abstractmethod
    def step(self, rate: float) -> None:
        """One step at a learning rate."""

    @abstractmethod
    def snapshot(self) -> list[Tensor]:
        """A copy of the weights."""

    @abstractmethod
    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Goes back to a copy; `steps` is how many were made since the network was made."""

    @abstractmethod
    def state(self) -> State:
        """Weights and moments, to be saved and loaded in place."""

    def weights(self) -> State:
        """The fp32 weights alone, without adapters, as this rank holds them; to be loaded in place."""
        return {name: part for name, part in self.state().items() if name.startswith("model.")}

    def masters(self) -> State:
        """The same as the next training is to find them: adapters merged in."""
        return self.weights()

    @abstractmethod
    def restored(self, steps: int) -> None:
        """Goes on from what was loaded into `state` or `weights` after so many steps."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The whole weights by name; needed on rank 0 only."""

    def settle(self) -> None:  # noqa: B027  (most gather nothing)
        """To be called after passes without gradient: lets go of what they gathered."""


class Engine(ABC):
    """One rank's share of a network that is trained.

    Args:
        job: the parent and the training's settings.
        rank, world: this rank and how many there are.

    Raises:
        CheckpointError: the parent cannot be loaded.
    """

    optimizer: ClassVar[Optimizer]
    """Whose learning rates are meant."""
    device = torch.device("cpu")
    dtype = torch.float32
    """Of log probabilities."""
    peak_operations: float | None = None
    """Floating-point operations per second that this rank's device could make at most; None where that is not known."""
    report_every = 1
    """Steps from one report of the loss to the next; a report makes the ranks wait for each other."""

    def __init__(self, job: Job, rank: int, world: int) -> None:
        self._job, self.rank, self.world = job, rank, world

    @abstractmethod
    def encode(self, documents: Sequence[Document], screenshots: Path, numbered: bool = False) -> list[int]:
        """Goes on with these documents, all of one kind; how many targets each has, 0 for one that cannot be drawn.

        Args:
            documents: what is encoded.
            screenshots: the file that holds their screens.
            numbered: whether an objective must know each target again: then the small policy, too, encodes a sample the
                same whenever it comes, neither moved nor asked other questions.

        Raises:
            FlywheelError: a document that cannot be encoded.
        """

    @abstractmethod
    def prepare(self, chosen: Sequence[SampleRef]) -> Any:
        """Begins to make the batch of these documents, the same on every rank; called one step ahead."""

    @abstractmethod
    def ready(self, prepared: Any) -> Batch:
        """The batch that `prepare` began."""

    @abstractmethod
    def forward(self, piece: Piece) -> Outputs:
        """One forward pass; with gradient where gradients are on."""

    def lengths(self, document: int) -> tuple[int | None, int | None]:
        """Tokens of a document's thought and of its whole reply; None for what it has not, or nobody counts."""
        return None, None

    def sync(self, last: bool) -> None:  # noqa: B027  (most sum at the end of a step)
        """To be called before a piece whose gradient is asked for: whether it is the last of its step."""

    @abstractmethod
    def zero(self) -> None:
        """Forgets gradients."""

    @abstractmethod
    def update(self, rate: float) -> float:
        """One optimiser step on the ranks' summed gradient; its norm before clipping. An unsound one moves nothing."""

    @abstractmethod
    def body(self, weights: Mapping[str, Tensor]) -> Body:
        """A network for a critic, of these weights; of the parent's if there are none."""

    @abstractmethod
    def state(self) -> State:
        """What a training goes on from: weights and moments in fp32, as this rank holds them; also loaded in place."""

    @abstractmethod
    def restored(self, step: int) -> None:
        """Goes on from what was loaded into `state`, which was saved after so many steps."""

    @property
    def moments_kind(self) -> str:
        """Whose moments these are, and in what numbers: only those of the same kind are taken up from a parent."""
        return self.optimizer

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained in place of the weights."""
        return False

    def weights(self) -> State:
        """All weights, `model.` and their names without adapters, and the moments; to be loaded in place."""
        return self.state()

    def masters(self) -> State:
        """The same as the next training is to find them: adapters merged in."""
        return self.state()

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Writes the weights into a copy of the parent's other files, which all ranks reach; all call it."""

    def read(self, documents: Sequence[int], size: int | None = None) -> Iterator[Piece]:
        """This rank's pieces of these documents, `size` of them at a time; every rank goes through all."""
        size = size or self._job.train.batch
        parts = [documents[start : start + size] for start in range(0, len(documents), size)]
        chosen = [[SampleRef(int(one), int(one)) for one in part] for part in parts]
        ahead = self.prepare(chosen[0]) if chosen else None
        for number in range(len(chosen)):
            batch = self.ready(ahead)
            if number + 1 < len(chosen):
                ahead = self.prepare(chosen[number + 1])
            yield from batch.pieces

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the ranks, on every rank."""
        values = values.to(self.device)
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def settle(self) -> None:  # noqa: B027  (most gather nothing)
        """To be called after passes without gradient: lets go of what they gathered."""

    def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Lets go of threads and the like."""
