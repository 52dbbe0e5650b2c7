"""Thoughts: none, templates, those that explain the known action (ActRe), and those that led to it (bootstrapping).

All arms of a training seed train from the same untrained policy on the very same trajectories of the explorer, with the
same number of steps; they differ in the thoughts of the steps alone. `actre` is the thinker `rules`, which is told the
action; `bootstrap` draws from the policy that `actre` made, which is not, and takes the rules' thought where none of
its draws came to the same action. `both` reads half of the trajectories without their thoughts, and is measured acting
either way. Success on test seeds is greedy, and paired by training seed, task and test seed.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.shared.arms import FIRST_TEST_SEED, root_of
from benchmarks.shared.paired import Key, difference
from benchmarks.shared.report import finish
from environments.catalog import tasks_named
from learning.algorithms.method import method_of
from rollout.trajectory import FinishedTrajectory
from schemas.config import Config, load_config
from storage.lake import Lake
from tasks.annotate import annotate_steps
from tasks.collect.collect import collect_trajectories
from tasks.curriculum import choose_tasks
from tasks.evaluate import evaluation_of, perform
from tasks.filter import filter_trajectories
from tasks.prepare import INITIAL, prepare_lake
from tasks.running.run import open_run
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import policy_row
from tasks.shared.weights import load_policy
from tasks.think.think import think_again
from tasks.train.train import pins_of, train_from

Row = dict[str, Any]
RULES, TEMPLATE = 'think.thinkers=["rules"]', 'think.thinkers=["template"]'
ARMS: dict[str, tuple[str, ...]] = {
    "none": ("policy.thoughts=false", TEMPLATE),
    "template": (TEMPLATE,),
    "actre": (RULES,),
    "both": (RULES, "think.keep_without=0.5"),
    "bootstrap": ('think.thinkers=["policy","rules"]',),
}
"""In the order in which they think: of two thoughts of a step the newer one is trained on."""
FIXED = (RULES, "suite.practice=[]", "curriculum.method=uniform", "policy.max_new_tokens=48")


def run(options: argparse.Namespace) -> int:
    """Trains every arm with every seed and prints both tables."""
    rows = [row for seed in range(options.seeds) for row in _of_seed(options, seed)]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    table = [_mean_of(rows, arm) for arm in arms]
    lifts = [_lift(rows, arm, "none") for arm in arms if arm != "none"]
    lifts.append(_lift(rows, "bootstrap", "actre"))
    return finish("thoughts", [*rows, *table, *lifts], [], options.json, [table, lifts])


def _of_seed(options: argparse.Namespace, seed: int) -> list[Row]:
    """What every arm comes to with one training seed; what was made before is not made again."""
    root = root_of(options.config, options.overrides)
    folder = root.parents[1] / "learning" / f"thoughts-{root.name}" / str(seed)
    common = (*options.overrides, *FIXED, f"lake.uri={folder}/lake", f"seed={seed}")
    config = load_config(options.config, common)
    with open_run(config) as run:
        prepare_lake.fn(config, -1)  # the stages themselves: nobody schedules a benchmark
        for stage in (choose_tasks, collect_trajectories, filter_trajectories, annotate_steps):
            stage.fn(config, 0)
        rows: list[Row] = []
        for name, changes in ARMS.items():
            arm = load_config(options.config, (*common, *changes))
            thought = _kept(folder / f"{name}.json", lambda arm=arm, name=name: _made(arm, run.lake, name))
            rows.append(_measured(options, arm, run.lake, name, name, folder) | thought)
            if name == "both":
                silent = load_config(options.config, (*common, *changes[:1], "policy.thoughts=false"))
                rows.append(_measured(options, silent, run.lake, name, "both, acting without", folder) | thought)
    return [{"seed": seed, **row} for row in rows]


def _made(config: Config, lake: Lake, name: str) -> Row:
    """Thinks and trains; the seconds of both."""
    if name == "bootstrap":
        _crown(lake, "actre")
    began, found = time.perf_counter(), think_again(config, lake, (0, 1))
    thinking, began = time.perf_counter() - began, time.perf_counter()
    if not lake.count("policies", {"policy_version": name}):
        train_from(config, lake, PolicyRecipe(name, INITIAL, 0, pins_of(lake), "retrained"))
    steps = method_of(config.train).schedule(config.train, 1, "muon", True).steps
    asked, kept = sum(one.asked for one in found.kept_by_step), sum(one.kept for one in found.kept_by_step)
    return {
        "train steps": steps,
        "trajectories": lake.count("trajectories", {"iteration": 0}),
        "thinking s": round(thinking, 1),
        "training s": round(time.perf_counter() - began, 1),
        "kept": round(kept / asked, 3) if name == "bootstrap" and asked else None,
        "kept by step": [asdict(one) for one in found.kept_by_step] if name == "bootstrap" else [],
        "patterns": dict(found.patterns) if name in ("actre", "bootstrap") else {},
    }


def _crown(lake: Lake, version: str) -> None:
    """Makes a policy the champion, of which bootstrapping draws."""
    rows = [(policy_row(lake, INITIAL), "retired"), (policy_row(lake, version), "champion")]
    lake.upsert("policies", [row.model_copy(update={"status": status}) for row, status in rows])


def _measured(options: argparse.Namespace, config: Config, lake: Lake, version: str, arm: str, folder: Path) -> Row:
    def measure() -> Row:
        policy = load_policy(config, lake, version)
        planned = [
            evaluation_of(policy, task, seed, -1, "ad hoc")
            for task in tasks_named(config, config.suite.tasks)
            for seed in range(FIRST_TEST_SEED, FIRST_TEST_SEED + options.test_seeds)
        ]
        made: list[FinishedTrajectory] = []
        began = time.perf_counter()
        perform(config, policy, planned, made.extend)
        steps = [step for record in made for step in record.steps]
        return {
            "seconds per trajectory": (time.perf_counter() - began) / len(planned),
            "tokens per step": sum(len(step.token_ids or ()) for step in steps) / max(1, len(steps)),
            "plays": [[one.trajectory.task_id, one.trajectory.seed, one.trajectory.success] for one in made],
        }

    found = _kept(folder / f"{arm.replace(' ', '-')}-{options.test_seeds}-test.json", measure)
    won = [success for _, _, success in found["plays"] if success is not None]
    return {"arm": arm, "success": sum(won) / max(1, len(won)), **found}


def _kept(path: Path, make: Any) -> Row:
    """The JSON of a file, which is made first where it is missing."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(json.dumps(make()))
        part.replace(path)
    return json.loads(path.read_text())


def _mean_of(rows: Sequence[Row], arm: str) -> Row:
    """An arm over its training seeds."""
    mine = [row for row in rows if row["arm"] == arm]
    names = ("success", "seconds per trajectory", "tokens per step", "thinking s", "training s", "kept")
    means = {name: _mean([row[name] for row in mine]) for name in names}
    return {"arm": arm, "train steps": mine[0]["train steps"], "trajectories": mine[0]["trajectories"], **means}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _lift(rows: Sequence[Row], arm: str, against: str) -> Row:
    """Paired difference of two arms, with its interval over training seeds and tasks."""
    found = difference(_plays(rows, arm), _plays(rows, against))
    return {
        "arm": arm,
        "minus": against,
        "mean": found.mean,
        "low": found.clusters[0],
        "high": found.clusters[1],
        "paired": found.n,
        "clusters": found.clustered,
    }


def _plays(rows: Sequence[Row], arm: str) -> dict[Key, bool]:
    return {
        (row["seed"], task, seed): success
        for row in rows
        if row["arm"] == arm
        for task, seed, success in row["plays"]
        if success is not None
    }
