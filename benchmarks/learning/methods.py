"""Compare the methods of the loop from one champion, at equal sandbox steps and equal optimiser work.

All arms of a run seed continue from the same champion, supervised iterations from the config's base. `loop` is the
config as it is. `explorer data` has no trajectory of the policy, and `uniform` no curriculum. `corrections` and
`preferences` (DPO on the corrections' pairs) collect half as many trajectories, and use the sandbox steps of the other
half to correct failures. `continual` gives half of its optimiser steps to continual training. `grpo`, `ppo` and
`pass@k` roll out as many trajectories in groups. `supervised`, with which they are compared, takes as many optimiser
steps as GRPO's passes over samples, times 4/3, since GRPO also computes the parent's log probabilities.

After the last iteration each arm's champion is measured greedily. Differences are means over run seeds with intervals
by Student's t, and p-values with Holm's correction over the differences. No choice used these run seeds (31 and up) and
test seeds (6,000,000 and up). Sandbox steps and seconds of training are printed; they may differ between arms.

Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from benchmarks.arms import Arm
from benchmarks.harness import Bar, finish
from benchmarks.learning._start import branch, champion_of, lake_of, measured_row, start_of, trained_samples
from benchmarks.learning.curriculum import run_seeds
from benchmarks.learning.rl import ABOVE, PARENT_TOO
from schemas.config import Config, load_config

FIRST_SEED, FIRST_TEST_SEED = 31, 6_000_000
LOOP, GRPO, SUPERVISED = "loop", "grpo", "supervised"
COMPARED: Sequence[tuple[str, str]] = (
    (LOOP, "explorer data"),
    (LOOP, "uniform"),
    (GRPO, SUPERVISED),
    ("ppo", SUPERVISED),
    ("pass@k", GRPO),
    ("corrections", LOOP),
    ("preferences", LOOP),
    (LOOP, "without thoughts"),
    ("continual", LOOP),
)
"""Differences, each of two arms."""
ARMS = tuple(dict.fromkeys(arm for pair in COMPARED for arm in (*pair[1:], pair[0])))
"""The arms, in the order in which they run: `supervised` needs GRPO's passes, so it runs after it."""


def run(options: argparse.Namespace) -> int:
    """Runs the arms of every run seed and prints the tables."""
    config = load_config(options.config, options.overrides)
    chosen = [arm for arm in sorted(ARMS, key=SUPERVISED.__eq__) if arm in (options.arms or ARMS)]
    if SUPERVISED in chosen and GRPO not in chosen:
        chosen.insert(0, GRPO)
    rows: list[dict[str, Any]] = []
    for seed in run_seeds(options.seeds, FIRST_SEED):
        start = start_of(options, seed)
        rows.append(_row(start, options, config))
        steps = rows[-1]["sandbox steps"] // options.start
        passes = 0.0
        for name in chosen:
            arm = branch(start, name, *overrides_of(name, config, steps, passes / options.iterations))
            arm.run_until(options.start + options.iterations)
            passes = trained_samples(arm, options.start) if name == GRPO else passes
            rows.append(_row(arm, options, config))
    compared = differences(rows)
    bars = [Bar(f"lower end of {row['difference']}", row["low"], ABOVE, "higher") for row in compared]
    return finish("methods", [*rows, *compared], bars, options, [rows, compared])


def overrides_of(name: str, config: Config, steps: int, passes: float) -> Sequence[str]:
    """Returns the overrides of an arm.

    Args:
        name: the arm. config: the loop's.
        steps: sandbox steps of an iteration of the start. passes: GRPO's passes over samples in an iteration.
    """
    collect, train, tasks = config.collect, config.train, len(config.suite.tasks)
    practised = len(config.suite.practice) * collect.practice_trajectories
    groups = max(1, (tasks * collect.trajectories_per_task + practised) // train.group.size)
    rolled = (f"train.group.groups={groups}",)
    corrected = (
        "reflect.on=true",
        f"reflect.steps={steps // 2}",
        f"collect.trajectories_per_task={max(1, collect.trajectories_per_task // 2)}",
    )
    matched = max(1, math.ceil(PARENT_TOO * passes / train.batch))
    own: Mapping[str, Sequence[str]] = {
        "explorer data": ("collect.policy_share=0", "collect.relay_share=0"),
        "uniform": ("curriculum.method=uniform", "train.task_balance=0"),
        GRPO: ("train.method=grpo", *rolled),
        "ppo": ("train.method=ppo", *rolled),
        "pass@k": ("train.method=grpo", "train.group.advantage=passk", *rolled),
        SUPERVISED: (f"train.steps={matched}",),
        "corrections": corrected,
        "preferences": (*corrected, "train.method=dpo"),
        "without thoughts": ("policy.thoughts=false",),
        "continual": (
            "train.ct_every=1", f"train.ct.steps={train.steps // 2}", f"train.steps={train.steps - train.steps // 2}",
        ),
    }  # fmt: skip
    return own.get(name, ())


def differences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Subtracts the success of arms, paired by run seed (`COMPARED`); no interval from a single seed."""
    found = []
    for one, other in COMPARED:
        ours, theirs = ({row["seed"]: row["success"] for row in rows if row["arm"] == arm} for arm in (one, other))
        gaps = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        if not gaps:
            continue
        mean, n = math.fsum(gaps) / len(gaps), len(gaps)
        error = float(stats.sem(gaps)) if n > 1 else math.nan
        half = float(stats.t.ppf(0.975, n - 1)) * error if n > 1 else math.inf
        p = 2 * float(stats.t.sf(abs(mean) / error, n - 1)) if error else float(mean == 0)
        found.append({"difference": f"{one} - {other}", "mean": mean, "low": mean - half, "high": mean + half,
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


def _row(arm: Arm, options: argparse.Namespace, config: Config) -> dict[str, Any]:
    version, lake = champion_of(arm), lake_of(arm)
    row = measured_row(arm, version, arm.measure(version, config.suite.tasks, options.test_seeds, FIRST_TEST_SEED))
    steps = sum(lake.read("trajectories", ["n_steps"])["n_steps"].to_pylist())
    made = [json.loads(one) for one in lake.read("policies", ["metrics"])["metrics"].to_pylist() if one]
    return {**row, "sandbox steps": steps, "training s": sum(one.get("seconds", 0.0) for one in made),
            "stages s": sum(one["wall_s"] for one in arm.iterations())}  # fmt: skip
