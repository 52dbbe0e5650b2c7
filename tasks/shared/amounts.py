"""Compute the number of trajectories that a stage rolls out, for runs and for `flywheel plan`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from environments.catalog import catalog
from schemas.config import Config
from schemas.tables.task import GuiTask, Split
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.shared.suite import made_tasks

SeedsOf = Sequence[tuple[GuiTask, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class CollectedCount:
    """Number of trajectories that an iteration rolls out for data."""

    chosen: int
    """Trajectories that the curriculum distributes over tasks, singly or in groups."""
    practised: int
    """Trajectories of practice pages."""

    @property
    def total(self) -> int:
        """All trajectories."""
        return self.chosen + self.practised


def collected(config: Config, tasks: Sequence[GuiTask]) -> CollectedCount:
    """Return the number of trajectories that an iteration rolls out for data, for these tasks."""
    if config.train.in_groups:
        return CollectedCount(config.train.group.groups * config.train.group.size, 0)
    suite, practice = (sum(task.split == split for task in tasks) for split in ("train", "practice"))
    return CollectedCount(suite * config.collect.trajectories_per_task, practice * config.collect.practice_trajectories)


def measured_first(config: Config) -> dict[str, SeedsOf]:
    """Return the tasks and seeds on which the explorer and the untrained policy are measured, once per lake."""
    chosen = config.evaluate
    return {
        "explorer": validation_seeds(config, "train", chosen.explorer_seeds),
        "untrained": validation_seeds(config, "train", chosen.untrained_seeds),
    }


def measured_suites(config: Config, lake: Lake | None) -> dict[str, SeedsOf]:
    """Return the tasks and seeds of a candidate's evaluation by suite: suite tasks, held-out tasks and made tasks."""
    chosen = config.evaluate
    suite = validation_seeds(config, "train", chosen.seeds)
    plans = {"suite": suite, "held_out": validation_seeds(config, "held_out", chosen.held_out_seeds)}
    if made := made_tasks(config, lake):
        plans["synthesized"] = [(task, suite[0][1]) for task in made]
    return plans


def trajectories(plans: Mapping[str, SeedsOf]) -> int:
    """Return the number of trajectories of a measurement."""
    return sum(len(seeds) for plan in plans.values() for _, seeds in plan)


def validation_seeds(config: Config, split: Split, count: int) -> SeedsOf:
    """Return the tasks of a split with their first `count` validation seeds, which are the same for every policy."""
    start = SPLIT_STARTS["validation"]
    return [(task, range(start, start + count)) for task in catalog(config) if task.split == split]
