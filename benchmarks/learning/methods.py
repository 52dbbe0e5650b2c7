"""Compare the loop with variants of it from one champion, at equal trajectories and equal optimiser steps.

All arms of a run seed continue from the same champion, supervised iterations from the config's base. `explorer data`
has no trajectory of the policy, and `uniform` no curriculum. After the last iteration each arm's champion is measured
greedily. Differences are means over run seeds with intervals by Student's t, and p-values with Holm's correction
over the arms. No choice used these run seeds (31 and up) and test seeds (6,000,000 and up). Sandbox steps are printed;
they may differ between arms.

Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from benchmarks.arms import Arm
from benchmarks.harness import Bar, finish
from benchmarks.learning._start import branch, champion_of, lake_of, measured_row, start_of
from benchmarks.learning.curriculum import run_seeds
from benchmarks.learning.rl import ABOVE
from schemas.config import load_config

FIRST_SEED, FIRST_TEST_SEED = 31, 6_000_000
LOOP = "loop"
ARMS: Mapping[str, Sequence[str]] = {
    LOOP: (),
    "explorer data": ("collect.policy_share=0", "collect.relay_share=0"),
    "uniform": ("curriculum.method=uniform", "train.task_balance=0"),
}
"""Overrides of each arm; the loop is compared with all others."""


def run(options: argparse.Namespace) -> int:
    """Runs the arms of every run seed and prints the tables."""
    tasks = load_config(options.config, options.overrides).suite.tasks
    rows: list[dict[str, Any]] = []
    for seed in run_seeds(options.seeds, FIRST_SEED):
        start = start_of(options, seed)
        rows.append(_row(start, options, tasks))
        for name in options.arms or ARMS:
            arm = branch(start, name, *ARMS[name])
            arm.run_until(options.start + options.iterations)
            rows.append(_row(arm, options, tasks))
    compared = differences(rows)
    bars = [Bar(f"lower end of {row['difference']}", row["low"], ABOVE, "higher") for row in compared]
    return finish("methods", [*rows, *compared], bars, options, [rows, compared])


def differences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Subtracts each other arm's success from the loop's, paired by run seed; no interval from a single seed."""
    found = []
    for name in dict.fromkeys(row["arm"] for row in rows if row["arm"] in ARMS and row["arm"] != LOOP):
        ours, theirs = ({row["seed"]: row["success"] for row in rows if row["arm"] == one} for one in (LOOP, name))
        gaps = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        if not gaps:
            continue
        mean, n = math.fsum(gaps) / len(gaps), len(gaps)
        error = float(stats.sem(gaps)) if n > 1 else math.nan
        half = float(stats.t.ppf(0.975, n - 1)) * error if n > 1 else math.inf
        p = 2 * float(stats.t.sf(abs(mean) / error, n - 1)) if error else float(mean == 0)
        found.append({"difference": f"{LOOP} - {name}", "mean": mean, "low": mean - half, "high": mean + half,
                      "p": p, "seeds": n})  # fmt: skip
    corrected = holm([row["p"] for row in found])
    return [{**row, "p, Holm": p} for row, p in zip(found, corrected, strict=True)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values for their number: p of rank i of m, from 0, becomes the maximum of (m - j) p_j for j <= i, at
    most 1. NaN stays NaN, and does not count."""
    known = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    order, most = sorted(known, key=p_values.__getitem__), 0.0
    corrected = [math.nan] * len(p_values)
    for rank, place in enumerate(order):
        most = max(most, min(1.0, (len(order) - rank) * p_values[place]))
        corrected[place] = most
    return corrected


def _row(arm: Arm, options: argparse.Namespace, tasks: tuple[str, ...]) -> dict[str, Any]:
    version = champion_of(arm)
    row = measured_row(arm, version, arm.measure(version, tasks, options.test_seeds, FIRST_TEST_SEED))
    steps = sum(lake_of(arm).read("trajectories", ["n_steps"])["n_steps"].to_pylist())
    return {**row, "sandbox steps": steps, "stages s": sum(one["wall_s"] for one in arm.iterations())}
