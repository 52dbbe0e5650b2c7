"""Make the supervised start that all arms of a run seed share, and the branches from it.

A branch is a copy of the start's lake: the same champion, the same data, the same seeds to come. So arms are paired
from the first trajectory on.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.arms import Arm, root_of
from schemas.config import load_config
from storage.lake import Lake

FAKE = 'environments={"fake":{"sandboxes":8}}'
NETWORK = (
    FAKE,
    "suite.hard=[]",
    "suite.practice=[]",
    "suite.held_out=[]",
    "policy.base=tiny",
    "policy.hidden=96",
    "policy.layers=2",
    "policy.vision_hidden=64",
    "policy.vision_layers=2",
    "policy.max_new_tokens=16",
    "train.processes=1",
    "evaluate.held_out_seeds=0",
    "evaluate.explorer_seeds=1",
    "evaluate.untrained_seeds=1",
)
"""The fake sandbox and a smaller network."""
SHORT = (
    *NETWORK,
    'suite.tasks=["click-target","two-steps"]',
    "collect.trajectories_per_task=100",
    "train.steps_first=110",
    "train.steps=40",
    "evaluate.seeds=8",
    "train.group.groups=8",
    "train.group.size=6",
    "train.group.k=3",
    "train.group.batch=24",
    "train.group.highest=0.95",
    "promote.unparsable=1",
)
"""Enough to see that a benchmark works, not to compare methods."""


def start_of(options: argparse.Namespace, seed: int) -> Arm:
    """Run the supervised start of a run seed."""
    folder = root_of(options.config, options.overrides).parents[1] / "learning"
    folder = folder / f"{root_of(options.config, options.overrides).name}-{options.start}" / f"start-{seed}"
    overrides = (*options.overrides, f"lake.uri={folder}/lake", f"seed={seed}")
    arm = Arm("start", seed, options.config, folder, overrides)
    arm.run_until(options.start)
    return arm


def branch(start: Arm, name: str, *overrides: str) -> Arm:
    """An arm that goes on from the start with further overrides; copied where it is not there yet."""
    folder = start.folder.parent / f"{name.replace(' ', '-')}-{start.seed}"
    own = tuple(word for word in start.overrides if not word.startswith("lake.uri="))
    arm = Arm(name, start.seed, start.config, folder, (*own, f"lake.uri={folder}/lake", *overrides))
    if not arm.lake.exists():
        part = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.copytree(start.lake, part / "lake")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    return arm


def lake_of(arm: Arm) -> Lake:
    """An arm's lake."""
    return Lake.open(load_config(arm.config, arm.overrides).lake, create=False)


def champion_of(arm: Arm) -> str:
    """Return the arm's champion."""
    return json.loads(arm.flywheel("status", "--json"))["champion"]


def measured_row(arm: Arm, version: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    """What every table of arms has: a policy's success on test seeds, and the trajectories that its arm collected."""
    return {
        "arm": arm.name,
        "seed": arm.seed,
        "policy": version,
        "success": measured["success"],
        "95 %": "{:.2f} to {:.2f}".format(*measured["ci"]),
        "trajectories": sum(row["trajectories"] for row in arm.iterations()),
        "ci": measured["ci"],
        "tasks": measured["tasks"],
        "plays": measured["plays"],
    }


def trained_samples(arm: Arm, since: int) -> float:
    """Forward and backward passes over one sample each that an arm's group trainings made since an iteration."""
    rows = lake_of(arm).read("policies", ["iteration", "metrics", "method", "config"]).to_pylist()
    made = [row for row in rows if row["iteration"] >= since and row["method"] == "grpo"]
    epochs = [json.loads(row["config"])["train"]["group"]["epochs"] for row in made]
    return sum(json.loads(row["metrics"])["samples"] * often for row, often in zip(made, epochs, strict=True))


def adopt(into: Lake, source: Lake, version: str, name: str, parent: str) -> None:
    """Makes a policy of another lake known in this one, under another name."""
    if into.count("policies", {"policy_version": name}):
        return
    (row,) = source.read("policies", where={"policy_version": version}).to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        fetched = source.blobs.get_directory(row["checkpoint"], Path(folder) / "policy")
        address = into.blobs.put_directory(fetched, f"checkpoints/{name}")
    known = {"policy_version": name, "parent": parent, "checkpoint": address, "status": "candidate"}
    into.append("policies", [{**row, **known}])


def overrides_for(tasks: Sequence[str]) -> list[str]:
    """The overrides that narrow a suite to these tasks."""
    return [f"suite.tasks={json.dumps(list(tasks))}", "suite.hard=[]", "suite.practice=[]", "suite.held_out=[]"]
