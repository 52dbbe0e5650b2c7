"""Compare streaming with a synchronous loop on trajectories with a heavy tail: trained tokens per second.

Both arms have the same code, processes, trajectories and batches, from one supervised champion, in turn. Policy and
trainer are real; the sandboxes are fake, with delays drawn from Pareto's law (`_slow_sandbox`). The synchronous arm is
`train.stream.stale=0`: it rolls out the groups of a batch, waits for all of them, trains, and continues with the new
weights. No process starts in between, so it is faster than iterations are. The time is that of the whole run, with the
start of the trainer and the last, longest trajectory.
"""

import argparse
import shutil
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.arms import Arm
from benchmarks.harness import Bar, finish
from benchmarks.learning._start import SHORT, branch, champion_of, start_of
from environments.catalog import catalog
from schemas.config import load_config
from storage.lake import Lake
from tasks.collect.collect import write
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
    return finish("streaming", rows, bars, options)


def _measure(start: Arm, seed: int, stale: int, groups: int) -> dict[str, Any]:
    name = f"streaming {stale}"
    shutil.rmtree(start.folder.parent / f"{name.replace(' ', '-')}-{start.seed}", ignore_errors=True)
    arm = branch(start, name, *OVERRIDES[len(SHORT) :], *SLOW, f"train.stream.stale={stale}")
    config = load_config(arm.config, arm.overrides)
    lake = Lake.open(config.lake, create=False)
    iteration, parent = 1, champion_of(start)
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
