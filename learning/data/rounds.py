"""Divides a training into rounds: one for all samples, or one for each batch of a stream.

A round is a range of optimiser steps on one set of samples. A training without a stream has one round of `job.steps`
steps. A streaming training has a round for each batch, repeats the batch's samples for the method's `epochs`, and waits
for the next batch. Steps are numbered over all rounds, so a step belongs to one round.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learning.data.sample import order_of
from learning.data.sampler import FixedOrder, Sampler
from learning.data.stream import StreamFolder
from learning.job import Job
from schemas.failure import FlywheelError

POLL_S = 0.02
"""Seconds between polls for the next batch."""
Reader = Callable[[Path], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Round:
    """Optimiser steps [first, end) on one set of samples."""

    number: int
    """Number of the round, from 1."""
    first: int
    end: int
    samples: Sequence[Any]
    screenshots: Path
    sampler: Sampler


class Rounds:
    """The rounds of a job, in order; iterating may wait.

    Args:
        job: the training.
        read: reads samples from a file.
        epochs: number of passes over the samples of each batch of a stream.

    Raises:
        FlywheelError: there are no samples, no sample has a weight, or a stream ended without a batch.
    """

    def __init__(self, job: Job, read: Reader, epochs: float = 1.0) -> None:
        self._job, self._read, self._epochs = job, read, epochs
        self.waited_s = 0.0
        """Seconds spent waiting for batches."""

    def __iter__(self) -> Iterator[Round]:
        if self._job.stream is None:
            yield self._round(1, 0, self._job.steps, self._job.samples, self._job.screenshots)
            return
        folder, number, first = StreamFolder(self._job.stream), 1, 0
        while self._wait(folder, number):
            made = self._round(number, first, None, folder.rollouts(number), folder.screenshots(number))
            yield made
            number, first = number + 1, made.end
        if number == 1:
            raise FlywheelError(f"{self._job.stream}: the stream ended without a batch.", "Nothing was trained.")

    def _round(self, number: int, first: int, steps: int | None, path: Path, screenshots: Path) -> Round:
        samples, train = self._read(path), self._job.train
        seed = self._job.seed + (number - 1) * 1_000_003
        try:
            order = order_of(samples)
            sampler = Sampler([sample.weight for sample in samples], seed) if order is None else FixedOrder(order)
        except ValueError as error:
            raise FlywheelError(f"{path}: {error}.", "An iteration without accepted steps trains nothing.") from error
        if steps is None:
            steps = max(1, math.ceil(len(samples) * self._epochs / train.batch))
        return Round(number, first, first + steps, samples, screenshots, sampler)

    def _wait(self, folder: StreamFolder, number: int) -> bool:
        """Waits until a batch exists or no batch will follow; returns whether the batch exists."""
        clock = time.perf_counter()
        while not (ended := folder.ended()) and not folder.has(number):
            time.sleep(POLL_S)
        self.waited_s += time.perf_counter() - clock
        return not ended or folder.has(number)
