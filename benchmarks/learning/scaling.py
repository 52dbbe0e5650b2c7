"""Inference-time scaling of the supervised champion: success against the step budget and against best of k plays.

Every test seed is played several times at the collecting temperature. A play that ends in success after n steps counts
for every budget of n and more: the policy does not know its budget. Best of k is the unbiased pass@k, the verifier
picking among the plays.
"""

import argparse

from benchmarks._paired import Key
from benchmarks._report import finish
from benchmarks.learning._figure import save_points
from benchmarks.learning._sampled import by_seed, estimates, mean_with_interval
from benchmarks.learning._start import reigning, start_of
from schemas.config import load_config


def run(options: argparse.Namespace) -> int:
    """Plays and prints the two curves."""
    tasks = load_config(options.config, options.words).suite.tasks
    outcomes: dict[Key, list[bool]] = {}
    lengths: dict[Key, list[tuple[bool, int]]] = {}
    for seed in range(options.seeds):
        start = start_of(options, seed)
        plays = start.sample(reigning(start), tasks, options.test_seeds, options.attempts)["plays"]
        outcomes |= by_seed(plays, seed)
        for task, at, success, _, steps in plays:
            if success is not None:
                lengths.setdefault((seed, task, at), []).append((success, steps))
    rows = [
        {"measure": "best of k", "at": k, **mean_with_interval(estimates(outcomes, k))}
        for k in range(1, options.attempts + 1)
    ]
    for budget in range(1, max((steps for won in lengths.values() for _, steps in won), default=0) + 1):
        within = {key: _share(won, budget) for key, won in lengths.items()}
        rows.append({"measure": "step budget", "at": budget, **mean_with_interval(within)})
    if options.figure:
        save_points(rows, options.figure, "at", "measure", "Success against best of k and against the step budget")
    return finish("scaling", rows, [], options.json)


def _share(plays: list[tuple[bool, int]], budget: int) -> float:
    return sum(success and steps <= budget for success, steps in plays) / len(plays)
