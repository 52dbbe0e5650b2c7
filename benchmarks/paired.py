"""Paired differences of two arms, with two intervals: over trajectories taken as independent, and over clusters.

Trajectories of one run seed share a policy, and trajectories of one task share its difficulty. So the interval
over trajectories is too narrow. Resampling whole (run seed, task) clusters keeps these dependencies.

Source: Davison and Hinkley, Bootstrap Methods, 1997, section 3.8.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Key = tuple[int, str, int]
"""Run seed, task, test seed."""
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean difference of paired trajectories with its 95 % intervals; all NaN where nothing is paired."""

    mean: float
    trajectories: tuple[float, float]
    """Trajectories taken as independent."""
    clusters: tuple[float, float]
    """Resampled by (run seed, task)."""
    n: int
    clustered: int
    """The number of clusters."""

    def row(self) -> dict[str, float]:
        """Return the numbers as columns of a table."""
        return {
            "mean": self.mean,
            "trajectories, low": self.trajectories[0],
            "trajectories, high": self.trajectories[1],
            "clusters, low": self.clusters[0],
            "clusters, high": self.clusters[1],
            "paired": self.n,
            "clusters": self.clustered,
        }


def outcomes(rows: Iterable[Mapping[str, Any]], **where: object) -> dict[Key, bool]:
    """Return success by key from the `plays` of the rows with these values, without environment failures."""
    return {
        (row["seed"], task, seed): success
        for row in rows
        if all(row[column] == value for column, value in where.items())
        for task, seed, success, *_ in row["plays"]
        if success is not None
    }


def difference(ours: Mapping[Key, float], theirs: Mapping[Key, float]) -> Difference:
    """Subtract theirs from ours over the keys that both have."""
    gaps = {key: float(ours[key]) - float(theirs[key]) for key in sorted(set(ours) & set(theirs))}
    if not gaps:
        none = (math.nan, math.nan)
        return Difference(math.nan, none, none, 0, 0)
    values = list(gaps.values())
    mean = float(np.mean(values))
    half = 1.96 * float(stats.sem(values)) if len(values) > 1 else math.inf
    clusters = clusters_of(gaps)
    return Difference(mean, (mean - half, mean + half), bootstrap(clusters), len(values), len(clusters))


def mean_with_interval(values: Mapping[Key, float]) -> dict[str, float]:
    """Return the mean and its 95 % interval over clusters of (run seed, task)."""
    low, high = bootstrap(clusters_of(values))
    return {"mean": float(np.mean(list(values.values()))) if values else float("nan"), "low": low, "high": high}


def clusters_of(values: Mapping[Key, float]) -> list[list[float]]:
    """Group values by run seed and task."""
    clusters: dict[tuple[int, str], list[float]] = {}
    for (seed, task, _), value in sorted(values.items()):
        clusters.setdefault((seed, task), []).append(value)
    return list(clusters.values())


def bootstrap(clusters: Sequence[Sequence[float]], resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean when whole clusters are drawn with replacement."""
    if len(clusters) < 2:
        return -math.inf, math.inf
    sums, sizes = [sum(cluster) for cluster in clusters], [len(cluster) for cluster in clusters]
    found = stats.bootstrap(
        (sums, sizes), lambda total, count, axis: total.sum(axis) / count.sum(axis), n_resamples=resamples,
        paired=True, method="percentile", rng=0,
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)
