"""FlexSP's released cluster and lengths, lengths of GUI trajectories, and plans to compare sequence plans with."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from learning.planning.sequence_cost import ClusterCost

Lengths = npt.NDArray[np.int64]
RANKS, LONGEST = 64, 192_000
ROUNDED = 2 * RANKS
MILLISECOND = 2**20 / 1e6
"""The release divides MiB by GB/s and calls it milliseconds."""
A100 = ClusterCost(
    quadratic=5.128e-6, linear=0.1839576, fixed=629.3563, exchanged=4 * 2 * 32 * 4096 * 2 / 2**20,
    bandwidth=tuple(
        (degree, speed * MILLISECOND)
        for degree, speed in ((2, 119.54), (4, 104.07), (8, 96.5), (16, 10.33), (32, 5.94), (64, 4.87))
    ),
    token=4.480442, states=7.117447 * 16 / RANKS * 1024, memory=30 * 1024, degrees=(1, 2, 4, 8, 16, 32, 64),
)  # fmt: skip
WIKIPEDIA = (
    (0, 12), (1, 39), (5, 67), (10, 87), (25, 146), (50, 347), (75, 862), (90, 2_112), (95, 3_720), (96, 4_392),
    (97, 5_390), (98, 7_087), (99, 10_919), (99.5, 15_986), (99.9, 37_353), (99.95, 51_510), (99.99, 101_537),
    (99.999, 230_941), (100, 1_823_777),
)  # fmt: skip
"""Percentiles of the million lengths released with FlexSP, in tokens; their mean is 1,014."""


def wikipedia_like(count: int, draw: np.random.Generator) -> Lengths:
    """Lengths drawn by the released percentiles, log-linear in between."""
    share, tokens = zip(*WIKIPEDIA, strict=True)
    found = np.zeros(0, dtype=np.int64)
    while len(found) < count:
        long = np.exp(np.interp(100 * draw.random(count), share, np.log(tokens)))
        found = np.concatenate([found, as_released(long.astype(np.int64))])
    return found[:count]


def as_released(long: Lengths) -> Lengths:
    """Rounded up for every degree and the longest left out, as the release reads its files."""
    rounded = -(-long // ROUNDED) * ROUNDED
    return rounded[rounded <= LONGEST - ROUNDED]


def gui_like(count: int, draw: np.random.Generator) -> Lengths:
    """Trajectories as a GUI policy trains on: median 9.8K tokens, 90th percentile 40K, at most 170K."""
    return np.minimum(np.exp(draw.normal(math.log(9_800), 1.1, count)), 170_000).astype(np.int64) + 1


@dataclass(frozen=True, slots=True)
class Case:
    """One batch."""

    lengths: str
    """`wiki` or `gui`."""
    ranks: int
    degrees: int
    each: int
    """Sequences a rank."""
    seed: int

    @property
    def cluster(self) -> ClusterCost:
        """So many ranks, and degrees 1, 2, 4, ...; 128 and 256 ranks exchange at 0.82 and 0.7 times the speed of 64."""
        degrees = tuple(1 << power for power in range(self.degrees))
        slowest = A100.bandwidth[-1][1]
        speeds = dict(A100.bandwidth) | {128: 0.82 * slowest, 256: 0.7 * slowest}
        states = A100.states * 64 / self.ranks
        return replace(A100, states=states, degrees=degrees, bandwidth=tuple((d, speeds[d]) for d in degrees if d > 1))

    @property
    def batch(self) -> Lengths:
        """The lengths of its sequences, cut to what the largest group holds."""
        draw = np.random.default_rng([self.ranks, self.degrees, self.each, self.seed])
        long = {"wiki": wikipedia_like, "gui": gui_like}[self.lengths](max(2, self.each * self.ranks), draw)
        cost = self.cluster
        return np.minimum(long, cost.capacity(max(cost.degrees)))


def listed(most: int) -> list[tuple[Case, float]]:
    """Return every batch of at most so many ranks that listing all partitions planned, and its milliseconds.

    The listing was the planner until it took 152 s for 512 ranks and four degrees; `listed_plans.json` keeps the
    predicted milliseconds of its plans, one for each seed from 0 on.
    """
    kept = json.loads(Path(__file__).with_name("listed_plans.json").read_text())
    return [
        (Case(one["lengths"], one["ranks"], one["degrees"], one["each"], seed), milliseconds)
        for one in kept
        if one["ranks"] <= most
        for seed, milliseconds in enumerate(one["milliseconds"])
    ]
