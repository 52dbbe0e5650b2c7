"""The network of a separate critic, for the small policy."""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from learning.checkpoint import State
from learning.engines.engine import Body
from learning.engines.tiny.forward import ForwardBatch, read_piece
from learning.engines.tiny.optimizer import FlatOptimizer
from learning.job import Job
from models.tiny.layout import read_config
from models.tiny.network import TinyNet


class TinyBody(Body):
    """Small network of a separate critic; all ranks hold the same.

    Args:
        job: the parent and the training's settings.
        rank, world: this rank and how many there are.
        weights: to begin with; none for the parent's.
    """

    def __init__(self, job: Job, rank: int, world: int, weights: Mapping[str, Tensor]) -> None:
        self.net = TinyNet(read_config(job.parent), dict(weights)) if weights else TinyNet.load(job.parent)
        self._world, self._gradient = world, self.net.gradients()
        self._optimizer = FlatOptimizer(self.net, job.train, rank, world)

    def hidden(self, piece: ForwardBatch) -> Tensor:
        """Computes the hidden states of the tokens before the piece's targets."""
        return read_piece(self.net, piece)[0]

    def zero(self) -> None:
        """Clears the gradients."""
        self._gradient.zero_()

    def norm(self) -> float:
        """Computes the norm of the sum over the ranks."""
        if self._world > 1:
            dist.all_reduce(self._gradient)
        return float(torch.linalg.vector_norm(self._gradient, dtype=torch.float32))

    def step(self, rate: float) -> None:
        """Makes one step at a learning rate."""
        self._optimizer.step(self._gradient, rate)

    def snapshot(self) -> list[Tensor]:
        """Copies the weights; of the matrices only this rank's stretch."""
        return [self._optimizer.master.clone()]

    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Restores a copy."""
        self._optimizer.master.copy_(weights[0])
        self._optimizer.restored(steps)

    def state(self) -> State:
        """Returns the optimiser's state."""
        return self._optimizer.state()

    def restored(self, steps: int) -> None:
        """Resumes after so many steps."""
        self._optimizer.restored(steps)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the weights by name."""
        return dict(self.net.state())
