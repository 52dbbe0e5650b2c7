"""Divides a training into rounds, and computes the sampling order of a round without any state.

The order is sample id = f(seed, epoch, position). An epoch of N positions is one systematic draw from the weights.
Position p gets the sample whose interval of the cumulated weights contains (perm(p) + u) / N. So each sample occurs N
times its share, rounded up or down. A caller can draw all positions in advance (`Sampler.first`) and leave out samples
that never occur (`FixedOrder`).

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

import numpy as np
from typing_extensions import override

from learning.data.sample import order_of
from learning.data.slices import slices
from learning.data.stream import StreamFolder
from learning.job import Job
from schemas.failure import FlywheelError


class Sampler:
    """Draws sample ids by weight.

    Raises:
        ValueError: no weight is above 0, or a weight is negative or no number.
    """

    def __init__(self, weights: Sequence[float] | np.ndarray, seed: int) -> None:
        shares = np.asarray(weights, dtype=np.float64)
        if not len(shares) or not np.isfinite(shares).all() or shares.min() < 0 or shares.sum() <= 0:
            raise ValueError("sample weights must be finite, not negative, and not all 0")
        self._size = len(shares)
        self._edges = np.cumsum(shares / shares.sum())
        self._seed = seed
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self._size

    def sample(self, position: int) -> int:
        """Returns the sample id at a position in [0, inf)."""
        epoch, place = divmod(position, len(self))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._draw(epoch)
        return int(self._order[place])

    def first(self, count: int) -> np.ndarray:
        """Returns the sample ids at the positions [0, count)."""
        epochs = [self._draw(epoch) for epoch in range(-(-count // len(self)))]
        return np.concatenate([np.empty(0, dtype=np.int64), *epochs])[:count]

    def _draw(self, epoch: int) -> np.ndarray:
        rng = np.random.default_rng((self._seed, epoch))
        points = (rng.permutation(len(self)) + rng.random()) / len(self)
        return np.minimum(np.searchsorted(self._edges, points, side="right"), len(self) - 1)


class FixedOrder(Sampler):
    """Sample ids that were drawn in advance; after the last position, the order repeats.

    Args:
        order: (n,) the sample id at each position.
    """

    def __init__(self, order: np.ndarray) -> None:
        self._size, self._epoch, self._order = len(order), 0, order

    @override
    def _draw(self, epoch: int) -> np.ndarray:
        return self._order


def by_sample(order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inverts an order: increasing ids that occur (m,); the begin of each id's positions (m + 1,); all positions (n,).

    The positions are listed id by id.
    """
    positions = np.argsort(order, kind="stable")
    ids, starts = np.unique(order[positions], return_index=True)
    return ids, np.append(starts, len(order)), positions


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
    slices: Sequence[Sequence[int]]
    """Samples of each slice, by the sampler's ids; one sample each if the training has no slices."""


class Rounds:
    """The rounds of a job, in order; iterating may wait.

    Args:
        job: the training.
        read: reads samples from a file.
        epochs: number of passes over the samples of each batch of a stream.
        sliced: whether slices of trajectories are drawn instead of samples (`learning.data.slices`).

    Raises:
        FlywheelError: there are no samples, no sample has a weight, or a stream ended without a batch.
    """

    def __init__(self, job: Job, read: Reader, epochs: float = 1.0, sliced: bool = False) -> None:
        self._job, self._read, self._epochs, self._sliced = job, read, epochs, sliced
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
        drawn = slices(samples, self._job.policy.context_rule) if self._sliced else [[at] for at in range(len(samples))]
        seed = self._job.seed + (number - 1) * 1_000_003
        try:
            order = order_of(samples)
            if order is None:
                sampler = Sampler([samples[one[0]].weight for one in drawn], seed)
            else:
                places = np.zeros(len(samples), dtype=np.int64)
                places[[one[0] for one in drawn]] = np.arange(len(drawn))
                sampler = FixedOrder(places[order])
        except ValueError as error:
            raise FlywheelError(f"{path}: {error}.", "An iteration without accepted steps trains nothing.") from error
        if steps is None:
            steps = max(1, math.ceil(len(drawn) * self._epochs / train.batch))
        return Round(number, first, first + steps, samples, screenshots, sampler, drawn)

    def _wait(self, folder: StreamFolder, number: int) -> bool:
        """Waits until a batch exists or no batch will follow; returns whether the batch exists."""
        clock = time.perf_counter()
        while not (ended := folder.ended()) and not folder.has(number):
            time.sleep(POLL_S)
        self.waited_s += time.perf_counter() - clock
        return not ended or folder.has(number)
