"""Trajectories of several policies on chosen pages, in a lake of their own: a judge learns from them, or is measured.

What is there already is not rolled out again.
"""

import random
from collections.abc import Sequence
from contextlib import ExitStack

from environments.catalog import catalog
from models.explorer import PageExplorer
from models.policy import Policy
from rollout.actor import Actor
from rollout.runner import missing, roll_out_all
from rollout.trajectory import PlannedTrajectory
from schemas.config import Config
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.collect.plan import finished
from tasks.collect.records import drop_unfinished, write
from tasks.running.console import bar
from tasks.shared.weights import load_policy

APART = 10_000
"""Seeds between one policy's pages and the next one's."""


def gather(
    config: Config, made: Lake | None, versions: Sequence[str], split: str, first: int, explorer: int, each: int
) -> Lake:
    """Rolls out the tasks of a split, sampled at temperature 1, on seeds of their own.

    Args:
        config: `lake.uri` is where they go.
        made: the lake that holds the policies.
        versions: the policies.
        split: `train` or `held_out`.
        first: the first seed.
        explorer: trajectories of each task by the explorer.
        each: and by each policy.
    """
    lake = Lake.open(config.lake)
    tasks = [task for task in catalog(config) if task.split == split]
    lake.upsert("tasks", tasks)
    drop_unfinished(lake, 0)
    counts = {PageExplorer.version: explorer} | dict.fromkeys(versions, each)
    planned = [
        _planned(lake, task, version, first + APART * number + seed)
        for task in tasks
        for number, (version, count) in enumerate(counts.items())
        for seed in range(count)
    ]
    left = missing(random.Random(0).sample(planned, len(planned)), finished(lake, 0))
    with ExitStack() as stack:
        policies: list[Policy] = [
            PageExplorer(),
            *(load_policy(config, made, one) for one in versions if made and left),
        ]
        actors = {one.version: stack.enter_context(Actor(one, 1.0)) for one in policies}
        sink = lambda chunk: write(lake, chunk)  # noqa: E731
        roll_out_all(config, left, lambda one: [actors[one.policy_version]], sink, bar, "gather", for_data=True)
    return lake


def _planned(lake: Lake, task: GuiTask, version: str, seed: int) -> PlannedTrajectory:
    return PlannedTrajectory(
        lake_id=lake.lake_id,
        run_id=lake.lake_id,
        iteration=0,
        task=task,
        seed=seed,
        policy="explorer" if version == PageExplorer.version else "policy",
        policy_version=version,
        temperature=1.0,
    )
