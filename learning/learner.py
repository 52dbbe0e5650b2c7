"""Runs a training on one rank: a method's objective on an engine's network.

The loop (`learning.trainer`) controls sample order, steps, learning rate, progress and checkpoints. The learner encodes
documents, computes the reference values before the first step, and makes steps: the loss of every piece of a batch, the
gradient, and the update. Every rank has one learner and calls it in the same order.

`Measures` collects a training's measures between two reports, over all ranks, for its curves.

Each rank adds its numbers of a step, on its device if possible. A report takes one sum over the ranks and one transfer,
for any number of measures. An unknown measure is left out and never replaced by another.
"""

import math
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learning.algorithms.method import method_of
from learning.algorithms.objective import Objective
from learning.checkpoint import State
from learning.data.files import Rollout
from learning.engines.choice import engine_of
from learning.engines.engine import Batch, Engine, Outputs, Piece, SampleRef
from learning.job import RESULT, Job
from learning.master_weights import keep_master_weights, load_master_weights
from models.families.registry import reply_limit
from models.tiny.layout import TRAINING
from schemas.config.sections import PolicyConfig
from schemas.failure import UsageError

COUNTED = ("tokens", "operations", "thought", "thoughts", "reply", "replies", "cut", "drawn")
"""Sums over its documents that a rank keeps."""


class Measures:
    """One rank's share of the measures.

    Args:
        engine, objective: engine and objective of the training.
        policy: config of the policy, whose replies are cut at `policy.max_new_tokens`.
    """

    def __init__(self, engine: Engine, objective: Objective, policy: PolicyConfig) -> None:
        self._engine, self._objective, self._policy = engine, objective, policy
        self._limit: int | None = None
        self._seen = objective.counts.clone()
        self._restart()

    def _restart(self) -> None:
        self._sums = {name: 0.0 for name in COUNTED}
        self._seconds = 0.0
        self._entropy = torch.zeros(2, dtype=torch.float64, device=self._engine.device)

    def forward(self, outputs: Outputs) -> None:
        """Adds the entropies of a forward pass with gradient."""
        if outputs.entropy is not None:
            known = outputs.entropy.detach().double()
            self._entropy += torch.stack([known.sum(), torch.ones_like(known).sum()])

    def step(self, batch: Batch, documents: Sequence[object], seconds: float) -> None:
        """Adds a step.

        Args:
            batch: batch of the step.
            documents: all documents of the training.
            seconds: duration of the step on this rank.
        """
        self._seconds += seconds
        self._add("tokens", batch.tokens)
        self._add("operations", batch.operations)
        for number in batch.own:
            document = documents[number]
            thought, reply = self._engine.lengths(number)
            if thought is not None:
                self._add("thought", thought)
                self._add("thoughts", 1)
            if reply is not None:
                self._add("reply", reply)
                self._add("replies", 1)
            if isinstance(document, Rollout) and document.token_ids:
                self._add("drawn", 1)
                self._add("cut", len(document.token_ids) >= self._most)

    @property
    def _most(self) -> int:
        self._limit = self._limit or reply_limit(self._policy)
        return self._limit

    def _add(self, name: str, value: float) -> None:
        self._sums[name] += value

    def read(self, loss: Tensor) -> tuple[float, dict[str, float]]:
        """Reduces the last step's loss and the measures since the last report; all ranks call it.

        Args:
            loss: this rank's part of the loss.
        """
        engine, world, counts = self._engine, self._engine.world, self._objective.counts
        memory = [0.0] * world
        memory[engine.rank] = _peak_memory(engine.device)
        known = torch.tensor([*self._sums.values(), *memory], dtype=torch.float64)
        new = (counts - self._seen.to(counts)).to(engine.device, torch.float64)
        parts = [loss.detach().reshape(1).to(engine.device, torch.float64), self._entropy, new, known.to(engine.device)]
        total, *found = engine.sum(torch.cat(parts)).tolist()
        entropy, entropies, *found = found
        of_method, found = found[: len(new)], found[len(new) :]
        sums = dict(zip(COUNTED, found, strict=False))
        made = {
            "entropy": _mean(entropy, entropies),
            "thought_tokens": _mean(sums["thought"], sums["thoughts"]),
            "reply_tokens": _mean(sums["reply"], sums["replies"]),
            "truncated": _mean(sums["cut"], sums["drawn"]),
            "tokens_per_s": _mean(sums["tokens"], self._seconds) if sums["tokens"] else None,
            "mfu": self._mfu(sums["operations"]),
            "peak_memory_gb": max(found[len(COUNTED) :]) / 1e9,
            **self._objective.measures(torch.tensor(of_method, dtype=torch.float64)),
        }
        self._seen = counts.clone()
        self._restart()
        return total, {name: value for name, value in made.items() if value is not None and math.isfinite(value)}

    def _mfu(self, operations: float) -> float | None:
        """Computes model FLOP/s utilisation (PaLM, arXiv 2204.02311): the policy's operations divided by the devices'
        peak."""
        peak = self._engine.peak_operations
        return operations / (self._seconds * peak * self._engine.world) if peak and operations else None


def _mean(total: float, number: float) -> float | None:
    return total / number if number else None


def _peak_memory(device: torch.device) -> float:
    """Measures this rank's peak memory in bytes: of the GPU since the last call, or of the process since its start."""
    if device.type == "cuda":
        found = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return float(found)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one optimiser step."""

    loss: Tensor
    """This rank's part of the batch's loss, detached, on its device; the sum over the ranks is the batch's loss."""
    norm: float
    """Norm of the whole gradient before clipping; if it is not finite, the step changed nothing."""
    samples: tuple[int, ...]
    """The samples on which this rank trained; if ranks share a sample, only the first rank lists it."""


class Learner:
    """One rank's share of a training.

    Args:
        job, samples: the training and its samples, which are of the kind that the job's method reads. rank, world: this
        rank, and the number of ranks.
        engine: runs the network; made for the job's parent if not given.

    Raises:
        CheckpointError: the parent cannot be loaded, or its kind cannot be trained.
        UsageError: the job sets an option that the method or the model does not have.
        FlywheelError: a sample cannot be used for training.
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
        """Number of optimiser steps of the moments before this training."""
        self.objective = method.objective(job, self.engine)
        self._measures = Measures(self.engine, self.objective, job.policy)
        if job.stream is None:  # batches of a stream follow one by one
            self.take(samples, job.screenshots)

    def take(self, samples: Sequence[Any], screenshots: Path) -> None:
        """Switches to these samples, between two steps, and computes reference values with the current weights."""
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
        norm = float(self.engine.update(rate))
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
        """Accumulates the gradient of a step; returns this rank's part of the loss."""
        self.objective.start()
        self.engine.zero()
        self.objective.zero()
        if not self.objective.needs_sums:
            return self._add_all(batch)
        documents = torch.tensor(batch.documents).to(self.engine.device, non_blocking=True)
        if len(batch.pieces) == 1:  # one forward pass is enough for sums and gradient
            self.engine.sync(last=True)
            outputs = self.engine.forward(batch.pieces[0])
            self._measures.forward(outputs)
            loss = self.objective.weigh(self._summed(batch, [outputs]), documents)
            _backward(self.objective.loss(batch.pieces[0], outputs, batch), outputs)
        else:  # the graphs of all pieces together may not fit
            loss = self.objective.weigh(self.sums(batch), documents)
            self._add_all(batch)
        return loss if self.engine.rank == 0 else torch.zeros_like(loss)

    def _add_all(self, batch: Batch) -> Tensor:
        """Adds the gradient of all pieces; returns the sum of their loss terms."""
        loss = torch.zeros((), dtype=torch.float64, device=self.engine.device)
        for number, piece in enumerate(batch.pieces, 1):
            self.engine.sync(last=number == len(batch.pieces))
            loss = loss + self.add_gradient(piece, batch).double()
        return loss

    def add_gradient(self, piece: Piece, batch: Batch) -> Tensor:
        """Adds one piece's part of a step's gradient; returns its loss term."""
        outputs = self.engine.forward(piece)
        self._measures.forward(outputs)
        loss = self.objective.loss(piece, outputs, batch)
        _backward(loss, outputs)
        return loss.detach()

    def metrics(self) -> dict[str, float]:
        """Reports metrics other than the loss since the last start, over all ranks; all ranks call it once, at the
        end."""
        self.objective.start()
        return self.objective.metrics(self.engine.sum(self.objective.counts.clone()).cpu())

    def state(self) -> State:
        """Returns this rank's part of the training state; to be saved and loaded in place."""
        return {**self.engine.state(), **self.objective.state()}

    def restored(self, step: int) -> None:
        """Resumes at this step, after `state` was loaded."""
        self.engine.restored(self.before + step)
        self.objective.restored(step)

    def write(self, folder: Path, steps: int | None = None) -> None:
        """Writes the weights into a copy of the parent's other files; rank 0 writes, all ranks call it.

        Args:
            folder: folder with the copy.
            steps: number of all steps, only at the end of a training; the master weights for the next training are then
        saved, too.
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
