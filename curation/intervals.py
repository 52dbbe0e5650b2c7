"""Compute 95 % intervals of success rates, of means over tasks, and of paired differences.

Counts are small (20 seeds per task) and rates are near 0 or 1, so every variance is smoothed with half a success and
half a failure. A plain estimate would have no variance for zero successes out of twenty.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Z = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


class Interval(NamedTuple):
    """An estimate, its 95 % interval, and its number of trials; NaN throughout if there are none."""

    mean: float
    low: float
    high: float
    n: int


NOTHING = Interval(math.nan, math.nan, math.nan, 0)


def wilson(successes: int, trials: int) -> Interval:
    """Return a rate's interval by Wilson (JASA 22, 1927): (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    if trials == 0:
        return NOTHING
    rate, scale = successes / trials, 1 + Z**2 / trials
    centre = (rate + Z**2 / (2 * trials)) / scale
    half = Z * math.sqrt(rate * (1 - rate) / trials + Z**2 / (4 * trials**2)) / scale
    return Interval(rate, max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half)), trials)


def mean_interval(successes: Sequence[int], trials: Sequence[int]) -> Interval:
    """Return the mean of per-task rates; tasks are strata: SE² = (sum of p(1-p)/n over tasks) / (number of tasks)².

    Args:
        successes: successes per task.
        trials: trials per task, in the same order; tasks without trials are left out.
    """
    counts = [(s, n) for s, n in zip(successes, trials, strict=True) if n > 0]
    if not counts:
        return NOTHING
    mean = sum(s / n for s, n in counts) / len(counts)
    variance = sum(_smoothed(s, n) * (1 - _smoothed(s, n)) / n for s, n in counts) / len(counts) ** 2
    half = Z * math.sqrt(variance)
    return Interval(mean, max(0.0, mean - half), min(1.0, mean + half), sum(n for _, n in counts))


def paired_difference(candidate: Mapping[tuple[str, int], bool], champion: Mapping[tuple[str, int], bool]) -> Interval:
    """Return the candidate's mean over tasks minus the champion's, from trajectories of the same tasks and seeds.

    Args:
        candidate: success by (task, seed).
        champion: success of the champion; keys of only one side are left out.
    """
    return paired(candidate, champion).interval


@dataclass(frozen=True, slots=True)
class Paired:
    """Comparison of two policies on trajectories of the same tasks and seeds."""

    n: int
    wins: int
    """Number of pairs that only the candidate won."""
    losses: int
    """Number of pairs that only the champion won."""
    mean: float
    """Candidate's mean over tasks minus the champion's, in [-1, 1]; NaN without trajectories."""
    variance: float
    """Variance of that mean."""

    @property
    def interval(self) -> Interval:
        """The mean with its 95 % interval."""
        if not self.n:
            return NOTHING
        half = Z * math.sqrt(self.variance)
        return Interval(self.mean, max(-1.0, self.mean - half), min(1.0, self.mean + half), self.n)


def paired(candidate: Mapping[tuple[str, int], bool], champion: Mapping[tuple[str, int], bool]) -> Paired:
    """Compare two policies on the same tasks and seeds; tasks are strata.

    Within a task, with b trajectories that only the candidate won and c that only the champion won among n, the
    difference is (b - c)/n with variance (b + c - (b - c)²/n)/(n(n - 1)); half a win for each side is added over all
    tasks together. A single pair has no variance, so a task with one pair gets the variance of all pairs together,
    which is not smaller on average ("collapsed strata", Cochran, Sampling Techniques, 1977, 5A.12).

    Args:
        candidate: success by (task, seed).
        champion: success of the champion; keys of only one side are left out.
    """
    pairs: dict[str, list[int]] = defaultdict(list)
    for task, seed in candidate.keys() & champion.keys():
        pairs[task].append(int(candidate[task, seed]) - int(champion[task, seed]))
    if not pairs:
        return Paired(0, 0, 0, math.nan, math.nan)
    changes = [change for one in pairs.values() for change in one]
    mean = sum(sum(one) / len(one) for one in pairs.values()) / len(pairs)
    added, whole = 1 / len(pairs), _change_variance(changes, 1.0)
    of_tasks = (_change_variance(one, added) / len(one) if len(one) > 1 else whole for one in pairs.values())
    variance = sum(of_tasks) / len(pairs) ** 2
    return Paired(len(changes), changes.count(1), changes.count(-1), mean, variance)


def _smoothed(successes: int, trials: int) -> float:
    return (successes + 0.5) / (trials + 1)


def _change_variance(changes: list[int], added: float) -> float:
    """Return the variance of one change, with Bessel's correction; for a single change the maximum, 1."""
    n, total = len(changes), sum(changes)
    return (sum(map(abs, changes)) + added - total**2 / n) / (n - 1) if n > 1 else 1.0
