"""Measure the champion's success by step budget and by best of k trajectories, in full precision and int8.

Every test seed is rolled out several times at the collecting temperature. A trajectory that ends in success after n
steps counts for every budget of n and more, since the policy does not know its budget. Best of k is the unbiased
pass@k: the verifier picks among the trajectories. Dynamic int8 is compared by greedy success on the same seeds, and by
time.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import finish
from benchmarks.learning._precision import PRECISIONS, greedy, milliseconds
from benchmarks.learning._start import champion_of, start_of
from benchmarks.paired import Key, difference, mean_with_interval
from learning.algorithms.advantages import pass_at_k
from schemas.config import load_config


def run(options: argparse.Namespace) -> int:
    """Rolls out and prints the two curves, and what rounding costs and saves."""
    tasks = load_config(options.config, options.overrides).suite.tasks
    outcomes: dict[Key, list[bool]] = {}
    lengths: dict[Key, list[tuple[bool, int]]] = {}
    rounded: dict[str, dict[Key, bool]] = {name: {} for name in PRECISIONS}
    times: dict[str, dict[str, float]] = {}
    for seed in range(options.seeds):
        start = start_of(options, seed)
        trajectories = start.sample(champion_of(start), tasks, options.test_seeds, options.attempts)["plays"]
        outcomes |= by_seed(trajectories, seed)
        for task, at, success, _, steps in trajectories:
            if success is not None:
                lengths.setdefault((seed, task, at), []).append((success, steps))
        for name in PRECISIONS:
            rounded[name] |= greedy(start, name, tasks, options.test_seeds)
        times = times or milliseconds(start, 512 if options.short else 1024)
    rows = [
        {"measure": "best of k", "at": k, **mean_with_interval(estimates(outcomes, k))}
        for k in range(1, options.attempts + 1)
    ]
    for budget in range(1, max((steps for won in lengths.values() for _, steps in won), default=0) + 1):
        within = {key: _share(won, budget) for key, won in lengths.items()}
        rows.append({"measure": "step budget", "at": budget, **mean_with_interval(within)})
    precise = _precision_rows(rounded)
    timed: list[dict[str, Any]] = [
        {"model": model, **{f"{name} ms": value for name, value in taken.items()}} for model, taken in times.items()
    ]
    for row in timed:
        row["int8 / full"] = row["int8 ms"] / row["full ms"]
    return finish("scaling", [*rows, *precise, *timed], [], options, [rows, precise, timed])


def by_seed(trajectories: Sequence[Sequence[Any]], run_seed: int) -> dict[Key, list[bool]]:
    """Group the outcomes of attempts by task and seed, without environment failures."""
    found: dict[Key, list[bool]] = {}
    for task, seed, success, *_ in trajectories:
        if success is not None:
            found.setdefault((run_seed, task, seed), []).append(success)
    return found


def estimates(outcomes: Mapping[Key, Sequence[bool]], k: int) -> dict[Key, float]:
    """Return the unbiased pass@k of each key with at least k trajectories."""
    return {key: pass_at_k(len(won), sum(won), k) for key, won in outcomes.items() if len(won) >= k}


def _precision_rows(trajectories: dict[str, dict[Key, bool]]) -> list[dict[str, Any]]:
    """Success in each precision, and the paired difference."""
    rows = [
        {"precision": name, **mean_with_interval({key: float(value) for key, value in won.items()})}
        for name, won in trajectories.items()
    ]
    gap = difference(trajectories["int8"], trajectories["full"])
    return [*rows, {"precision": "int8 - full", "mean": gap.mean, "low": gap.clusters[0], "high": gap.clusters[1]}]


def _share(trajectories: list[tuple[bool, int]], budget: int) -> float:
    return sum(success and steps <= budget for success, steps in trajectories) / len(trajectories)
