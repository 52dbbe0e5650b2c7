"""Streaming against a synchronous loop on trajectories with a heavy tail of lengths: trained tokens per second.

Both arms are the same code, processes, trajectories and batches, from one supervised champion, turn about: the real
small policy, the real trainer, fake sandboxes whose delays are drawn from Pareto's law (emulated: `_slow_sandbox`). The
synchronous arm is `train.stream.stale=0`: it rolls out a batch's groups, waits for all of them, trains, and goes on
with the new weights; no process is started in between, so it is faster than iterations of the wheel are. The time is
all that a run takes, the trainer's start and the last, longest trajectory included.
"""

import argparse
import shutil
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.learning._figure import save_points
from benchmarks.learning._start import SHORT, branch, reigning, start_of
from benchmarks.shared.arms import Arm
from benchmarks.shared.report import Bar, finish
from environments.catalog import catalog
from schemas.config import load_config
from storage.lake import Lake
from tasks.collect.records import write
from tasks.collect.stream import roll_out_and_train
from tasks.running.run import run_of
from tasks.shared.material import PolicyRecipe
from tasks.shared.paths import work_folder
from tasks.shared.policies import version_of
from tasks.shared.weights import load_policy
from tasks.train.groups import planned_groups

FASTER = 1.5
OVERRIDES = (
    *SHORT,
    "train.method=grpo",
    "train.stream.on=true",
    "train.stream.groups=4",
    "train.group.epochs=1.0",
    "train.group.size=6",
)
SLOW = (
    "environments.fake.kind=benchmarks.learning._slow_sandbox:SlowEnvironment",
    "environments.fake.sandboxes=24",
    "environments.fake.step_timeout_s=120",
)
"""As many sandboxes as a batch has trajectories: the synchronous loop then waits for the longest of them alone."""


def run(options: argparse.Namespace) -> int:
    """Runs every arm with every seed, in turn, and prints the table."""
    bounds = (0, 4) if options.short else (0, 1, 4)
    groups = 24 if options.short else 60
    options.overrides, options.start = [*OVERRIDES[: len(SHORT)], *options.overrides], 1
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        start = start_of(options, seed)
        rows += [_measure(start, seed, stale, groups) for stale in bounds]
    speeds = {stale: _speed([row for row in rows if row["stale"] == stale]) for stale in bounds}
    bars = [
        Bar(f"tokens/s, stale={stale} over synchronous", speeds[stale] / speeds[0], FASTER, "higher")
        for stale in bounds[-1:]
    ]
    if options.figure:
        save_points(_points(rows), options.figure, "arm", "panel", "Training while collecting goes on", success=False)
    return finish("streaming", rows, bars, options.json)


def _measure(start: Arm, seed: int, stale: int, groups: int) -> dict[str, Any]:
    name = f"streaming {stale}"
    shutil.rmtree(start.folder.parent / f"{name.replace(' ', '-')}-{start.seed}", ignore_errors=True)
    arm = branch(start, name, *OVERRIDES[len(SHORT) :], *SLOW, f"train.stream.stale={stale}")
    config = load_config(arm.config, arm.overrides)
    lake = Lake.open(config.lake, create=False)
    iteration, parent = 1, reigning(start)
    recipe = PolicyRecipe(version_of(iteration), parent, iteration, lake.versions())
    shutil.rmtree(work_folder(lake, recipe.version))
    tasks, size = catalog(config), config.train.group.size
    shares = [groups // len(tasks) * size] * len(tasks)
    trajectories = [
        one
        for task, share in zip(tasks, shares, strict=True)
        for one in planned_groups(run_of(config), iteration, task, share, parent)
    ]
    policy = load_policy(config, lake, parent)
    clock = time.perf_counter()
    streamed = roll_out_and_train(config, lake, recipe, trajectories, policy, lambda records: write(lake, records))
    made = streamed.model_dump()
    seconds = time.perf_counter() - clock
    shutil.rmtree(arm.folder)
    return {
        "seed": seed,
        "arm": "streaming" if stale else "synchronous",
        "stale": stale,
        "trained tokens": made["tokens"],
        "seconds": seconds,
        "tokens/s": made["tokens"] / seconds,
        "sandboxes idle": made["sandbox_idle"],
        "trainer idle": made["trainer_idle"],
        "batches": made["updates"],
        "groups": made["groups"],
        "age mean": made["age_mean"],
        "age most": made["age_max"],
        "steps left out": made["stale"],
        "mismatch": made["mismatch"],
        "mismatch_fresh": made["mismatch_fresh"],
    }


def _speed(rows: Sequence[dict[str, Any]]) -> float:
    return sum(row["trained tokens"] for row in rows) / sum(row["seconds"] for row in rows)


def _points(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over the seeds, with the least and the most of them."""
    found = []
    for panel in ("tokens/s", "sandboxes idle"):
        for stale in sorted({row["stale"] for row in rows}):
            values = [row[panel] for row in rows if row["stale"] == stale]
            mean = sum(values) / len(values)
            arm = f"stale {stale}" if stale else "synchronous"
            found.append({"arm": arm, "panel": panel, "mean": mean, "low": min(values), "high": max(values)})
    return found
