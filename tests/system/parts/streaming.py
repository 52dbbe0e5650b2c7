"""A small stream to roll out and train on: `python -m tests.system.parts.streaming FOLDER` does so, as a process to be
killed."""

import json
import sys
from pathlib import Path
from typing import Any

from environments.catalog import catalog
from models.tiny.build import build_tiny
from rollout.runner import missing
from schemas.config import Config, config_of
from schemas.table import utc_now
from schemas.tables.policy import PolicyVersion
from storage.lake import Lake
from tasks.collect.collect import drop_unfinished, finished, write
from tasks.collect.stream import roll_out_and_train
from tasks.running.run import run_of
from tasks.shared.material import PolicyRecipe
from tasks.shared.weights import load_policy
from tasks.train.groups import planned_groups
from tests.clicker import clicked

PARENT, CANDIDATE = "policy-0000", "policy-0001"
HITS = 0.3
"""Share of the clicks that hit: most groups of four then hold both outcomes."""


def config(folder: Path, stale: int = 4, groups: int = 2, **group: Any) -> Config:
    """Groups of four trajectories of `click-target`, two groups a batch."""
    small = {"hidden": 64, "layers": 1, "vision_hidden": 64, "vision_layers": 1, "max_new_tokens": 8}
    train = {
        "method": "grpo",
        "processes": 1,
        "group": {"size": 4, "k": 2, "batch": 16, "epochs": 1.0, **group},
        "stream": {"on": True, "groups": groups, "stale": stale},
    }
    return config_of(
        {
            "lake": {"uri": str(folder / "lake"), "min_free_mb": 10},
            "environments": {"fake": {"sandboxes": 4}},
            "suite": {"tasks": ["click-target"]},
            "policy": small,
            "train": train,
        }
    )


def begin(config: Config, folder: Path) -> Lake:
    """A lake whose champion is an untrained small policy."""
    texts = ['Thought: Click.\nAction: click(start_box="(500,250)")', "0123456789", "red green blue orange"] * 8
    build_tiny(config.policy, texts, 0, folder / "parent")
    lake = Lake.open(config.lake)
    row = PolicyVersion(
        policy_version=PARENT,
        kind="initial",
        parent=None,
        iteration=0,
        method="random",
        checkpoint=lake.blobs.put_directory(folder / "parent", f"checkpoints/{PARENT}"),
        data_versions="{}",
        config="{}",
        code="",
        seed=0,
        metrics="{}",
        status="champion",
        created_at=utc_now(),
    )
    lake.append("policies", [row])
    return lake


def run(config: Config, lake: Lake, groups: int, pause_s: float = 0.0) -> dict[str, Any]:
    """Rolls out so many groups, less what is in the lake already, and trains meanwhile; a clicker stands for all
    weights."""
    config = clicked(config, HITS, pause_s)
    (task,) = catalog(config)
    drop_unfinished(lake, 1)
    planned = planned_groups(run_of(config), 1, task, groups * config.train.group.size, PARENT)
    left = missing(planned, finished(lake, 1))
    recipe = PolicyRecipe(CANDIDATE, PARENT, 1, lake.versions())
    policy = load_policy(config, lake, PARENT)
    return roll_out_and_train(config, lake, recipe, left, policy, lambda records: write(lake, records)).model_dump()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(json.dumps(run(config(place), Lake.open(config(place).lake), 16, pause_s=0.1)), flush=True)
