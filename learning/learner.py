"""One training on one rank: a method's objective on an engine's network.

The loop (`learning.trainer`) controls sample order, steps, learning rate, progress and checkpoints. The learner takes
its steps: documents encoded, the weights before the first step compared with, the loss of every piece of a batch, the
gradient, the update. Every rank holds one and calls it in the same order.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learning.algorithms.method import method_of
from learning.checkpoint import State
from learning.engines.choice import engine_of
from learning.engines.engine import Batch, Engine, Outputs, Piece, SampleRef
from learning.job import RESULT, Job
from learning.master_weights import keep_master_weights, load_master_weights
from learning.measures import Measures
from models.tiny.layout import TRAINING
from schemas.failure import UsageError


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one optimiser step."""

    loss: Tensor
    """This rank's part of the batch's loss, detached; the sum over the ranks is the loss."""
    norm: float
    """Norm of the whole gradient before clipping; if it is not finite, the step changed nothing."""
    samples: tuple[int, ...]
    """The samples that this rank trained on; of ranks that share one, the first names it."""


class Learner:
    """One rank's share of a training.

    Args:
        job, samples: the training and its samples, which are of the kind that the job's method reads.
        rank, world: this rank and how many there are.
        engine: runs the network; made for the job's parent if not given.

    Raises:
        CheckpointError: the parent cannot be loaded, or is of a kind that cannot be trained.
        UsageError: an option that the method or the model does not have.
        FlywheelError: a sample that cannot be trained on.
        PlanError: a sample fits on no rank and no group of ranks.
    """

    def __init__(self, job: Job, samples: Sequence[Any], rank: int, world: int, engine: Engine | None = None) -> None:
        method = method_of(job.train)
        if job.stream is not None and not method.streams:
            raise UsageError(
                f"`train.stream.on`: {job.train.method} cannot train on a stream of samples.", "Set it to false."
            )
        self._job = job
        self.engine = engine or engine_of(job, rank, world)
        self.before = load_master_weights(self.engine, job.parent)
        """Optimiser steps that the moments had before this training."""
        self.objective = method.objective(job, self.engine)
        self._measures = Measures(self.engine, self.objective, job.policy)
        if job.stream is None:  # each batch of a stream is taken when its turn comes
            self.take(samples, job.screenshots)

    def take(self, samples: Sequence[Any], screenshots: Path) -> None:
        """Switches to these samples, between two steps; they are compared with the policy's present weights."""
        engine, objective = self.engine, self.objective
        self._documents = documents = objective.documents(samples)
        counts = engine.encode(documents, screenshots, objective.needs_parent or objective.needs_sums)
        parent = torch.zeros(sum(counts) if objective.needs_parent else 0, dtype=engine.dtype, device=engine.device)
        if objective.needs_parent:
            there = [number for number, count in enumerate(counts) if count]
            with torch.no_grad():
                for piece in engine.read(there, self._job.train.batch * objective.each):
                    outputs = engine.forward(piece)
                    parent[outputs.tokens] = outputs.logprobs.to(parent)
                    objective.compare(piece, outputs)
            engine.settle()
            parent = engine.sum(parent)
        objective.begin(counts, parent)

    def prepare(self, refs: Sequence[SampleRef]) -> Any:
        """Starts to make the batch of these samples, the same on every rank; called one step ahead of `step`."""
        each = self.objective.each
        return self.engine.prepare(
            [SampleRef(ref.position, ref.sample * each + side) for ref in refs for side in range(each)]
        )

    def step(self, prepared: Any, rate: float) -> StepResult:
        """Makes one optimiser step at a learning rate, on a batch of `prepare`."""
        began = time.perf_counter()
        batch = self.engine.ready(prepared)
        loss = self.gradient(batch)
        norm = self.engine.update(rate)
        if math.isfinite(norm):
            norm = math.hypot(norm, self.objective.update(rate))
        each = self.objective.each
        self._measures.step(batch, self._documents, time.perf_counter() - began)
        self._rate = rate
        return StepResult(loss, norm, tuple(number // each for number in batch.own if number % each == 0))

    def measured(self, result: StepResult) -> tuple[float, dict[str, float]]:
        """Reduces the last step's loss, and the measures since the last call, over all ranks; all ranks call it."""
        loss, found = self._measures.read(result.loss)
        return loss, {"grad_norm": result.norm, "learning_rate": self._rate, **found}

    def gradient(self, batch: Batch) -> Tensor:
        """Accumulates the gradient of a step; returns this rank's part of its loss."""
        self.objective.start()
        self.engine.zero()
        self.objective.zero()
        if not self.objective.needs_sums:
            return self._add_all(batch)
        documents = torch.tensor(batch.documents, device=self.engine.device)
        if len(batch.pieces) == 1:  # one forward pass does for the sums and for the gradient
            self.engine.sync(last=True)
            outputs = self.engine.forward(batch.pieces[0])
            self._measures.forward(outputs)
            loss = self.objective.weigh(self._summed(batch, [outputs]), documents).cpu()
            _backward(self.objective.loss(batch.pieces[0], outputs, batch), outputs)
        else:  # the graphs of all pieces together would not fit where a batch is taken in pieces
            loss = self.objective.weigh(self.sums(batch), documents).cpu()
            self._add_all(batch)
        return loss if self.engine.rank == 0 else torch.zeros_like(loss)

    def _add_all(self, batch: Batch) -> Tensor:
        """Adds the gradient of all pieces; returns the sum of their loss terms."""
        loss = torch.zeros((), dtype=torch.float64)
        for number, piece in enumerate(batch.pieces, 1):
            self.engine.sync(last=number == len(batch.pieces))
            loss = loss + self.add_gradient(piece, batch).double()
        return loss.cpu()

    def add_gradient(self, piece: Piece, batch: Batch) -> Tensor:
        """Adds one piece's part of a step's gradient; returns its loss term."""
        outputs = self.engine.forward(piece)
        self._measures.forward(outputs)
        loss = self.objective.loss(piece, outputs, batch)
        _backward(loss, outputs)
        return loss.detach()

    def metrics(self) -> dict[str, float]:
        """Reports metrics other than the loss since the (last) start, over all ranks; all call it once, at the end."""
        self.objective.start()
        return self.objective.metrics(self.engine.sum(self.objective.counts.clone()).cpu())

    def state(self) -> State:
        """Returns the training state, as this rank holds it; also loaded in place."""
        return {**self.engine.state(), **self.objective.state()}

    def restored(self, step: int) -> None:
        """Resumes at this step, after `state` was loaded."""
        self.engine.restored(self.before + step)
        self.objective.restored(step)

    def write(self, folder: Path, steps: int | None = None) -> None:
        """Writes the weights into a copy of the parent's other files; rank 0 writes, all ranks call it.

        Args:
            folder: the copy.
            steps: made in all, at the end of a training: then the master weights for the next one are kept too.
        """
        self.engine.write(folder)
        self.objective.write(folder)
        if steps is not None:
            place = f"{self._job.store}/{RESULT}/{TRAINING}" if self._job.store else None
            keep_master_weights(
                self.engine, self.objective.masters(), folder, self._job.train.keep, self.before + steps, place
            )

    def close(self) -> None:
        """Releases threads and other resources."""
        self.engine.close()

    @torch.no_grad()
    def sums(self, batch: Batch) -> Tensor:
        """Sums the log probabilities of each document of a step, on every rank."""
        return self._summed(batch, (self.engine.forward(piece) for piece in batch.pieces))

    def _summed(self, batch: Batch, outputs: Iterable[Outputs]) -> Tensor:
        sums = torch.zeros(len(batch.documents), dtype=torch.float64, device=self.engine.device)
        for one in outputs:
            sums.index_add_(0, one.rows, one.logprobs.detach().double())
        return self.engine.sum(sums)


def _backward(loss: Tensor, outputs: Outputs) -> None:
    (loss if outputs.auxiliary is None else loss + outputs.auxiliary.to(loss)).backward()
