"""Compare GRPO with further supervised training from one champion: held-out success at equal cost.

Both arms continue from the same supervised champion and collect the same number of trajectories. The supervised arm
takes as many optimizer steps as GRPO's passes over samples, times 4/3, since GRPO also computes the parent's log
probabilities. The last champion of each arm is measured greedily on test seeds (2,000,000 and up), which no run uses
and the authors have seen (docs/measurements.md, "Seeds").
"""

import argparse
import math

from benchmarks.arms import Arm
from benchmarks.harness import Bar, finish
from benchmarks.learning._start import branch, champion_of, measured_row, start_of, trained_samples
from benchmarks.paired import Difference, Key, difference
from schemas.config import load_config

PARENT_TOO = 4 / 3
ABOVE = 1e-3
"""What counts as above 0: no change at all is no gain."""


def run(options: argparse.Namespace) -> int:
    """Turns the arms of every run seed and prints the table."""
    config = load_config(options.config, options.overrides)
    trajectories: dict[str, dict[Key, bool]] = {}
    rows = []
    for seed in range(options.seeds):
        start = start_of(options, seed)
        rl = branch(start, "rl", "train.method=grpo")
        rl.run_until(options.start + options.iterations)
        passes = trained_samples(rl, options.start)
        steps = max(1, math.ceil(PARENT_TOO * passes / options.iterations / config.train.batch))
        group = config.train.group
        each = max(1, group.groups * group.size // len(config.suite.tasks))
        overrides = [f"train.steps={steps}", f"collect.trajectories_per_task={each}", "collect.practice_trajectories=0"]
        sft = branch(start, "further sft", *overrides)
        sft.run_until(options.start + options.iterations)
        for arm in (start, rl, sft):
            rows.append(_row(arm, options, config.suite.tasks, trajectories))
        rows[-2]["passes"], rows[-1]["passes"] = passes, steps * config.train.batch * options.iterations
    gaps = {
        "rl - start": difference(trajectories["rl"], trajectories["start"]),
        "further sft - start": difference(trajectories["further sft"], trajectories["start"]),
        "rl - further sft": difference(trajectories["rl"], trajectories["further sft"]),
    }
    rows += [{"difference": name, **gap.row()} for name, gap in gaps.items()]
    bars = [
        Bar("lower end of RL minus start", min(_lower(gaps["rl - start"])), ABOVE, "higher"),
        Bar("RL minus further SFT", gaps["rl - further sft"].mean, ABOVE, "higher"),
    ]
    return finish("rl", rows, bars, options, [rows[: -len(gaps)], rows[-len(gaps) :]])


def _row(
    arm: Arm, options: argparse.Namespace, tasks: tuple[str, ...], trajectories: dict[str, dict[Key, bool]]
) -> dict:
    version = champion_of(arm)
    measured = arm.measure(version, tasks, options.test_seeds)
    for task, seed, success in measured["plays"]:
        if success is not None:
            trajectories.setdefault(arm.name, {})[arm.seed, task, seed] = success
    rates = [row["verified"]["rate"] for row in arm.iterations() if row["verified"]]
    return {**measured_row(arm, version, measured), "passes": None, "P(V=1)": rates[-1] if rates else None}


def _lower(gap: Difference) -> tuple[float, float]:
    return gap.trajectories[0], gap.clusters[0]
