"""Read trajectories with their steps, as typed rows, and compute the number that a stage rolls out."""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow.dataset as pads

from environments.catalog import catalog
from learning.algorithms.method import DataSource, method_of
from schemas.config import Config
from schemas.failure import UnknownId, UsageError
from schemas.tables.evaluation_trajectory import EvaluationStep, EvaluationTrajectory
from schemas.tables.step import RecordedStep, Step
from schemas.tables.task import GuiTask, Split
from schemas.tables.trajectory import SPLIT_STARTS, RecordedTrajectory, Trajectory
from storage.catalog import stream
from storage.lake import Lake
from tasks.shared.suite import made_tasks

SHORT_ID = 8
"""Number of characters of an id on pages."""
NAMED = 5
"""Maximum number of ids in an error."""


def trajectories_of(lake: Lake, iteration: int) -> Iterator[tuple[Trajectory, list[Step]]]:
    """Yield every trajectory of an iteration with its steps in order. A trajectory may have no step."""
    left = {one.trajectory_id: one for one in lake.rows(Trajectory, {"iteration": iteration})}
    for name, steps in groupby(_steps(lake, iteration), key=lambda step: step.trajectory_id):
        trajectory = left.pop(name, None)
        if trajectory is not None:
            yield trajectory, list(steps)
    yield from ((trajectory, []) for trajectory in left.values())


def stored(lake: Lake, names: Collection[str]) -> Iterator[tuple[Trajectory, list[Step]]]:
    """Yield the trajectories with these ids, each with its steps in order."""
    where = {"trajectory_id": sorted(names)}
    steps: dict[str, list[Step]] = {}
    for step in sorted(lake.rows(Step, where), key=lambda one: one.step):
        steps.setdefault(step.trajectory_id, []).append(step)
    for trajectory in lake.rows(Trajectory, where):
        yield trajectory, steps.get(trajectory.trajectory_id, [])


def trajectory_of(lake: Lake, name: str) -> Trajectory:
    """Return a collected trajectory by its id (`episode_of`).

    Raises:
        UsageError: the trajectory is of an evaluation.
        UnknownId: no trajectory has this id, or several ids begin so.
    """
    row = episode_of(lake, name)
    if not isinstance(row, Trajectory):
        problem = f"`trajectory_id`: {name} is of the evaluation of {row.policy_version}, on a held-out seed."
        raise UsageError(
            problem, f"Its page and `flywheel trajectories show {name}` show it; no decision or training uses it."
        )
    return row


def whole_ids(lake: Lake, names: Collection[str]) -> list[str]:
    """Return the ids of collected trajectories, which may be abbreviated (`episode_of`), each once and in their order.

    Raises:
        UsageError: a trajectory is of an evaluation.
        UnknownId: no trajectory has an id, or several ids begin so.
    """
    there = set(
        lake.read("trajectories", ["trajectory_id"], {"trajectory_id": sorted(names)})["trajectory_id"].to_pylist()
    )
    return list(dict.fromkeys(name if name in there else trajectory_of(lake, name).trajectory_id for name in names))


def episode_of(lake: Lake, name: str) -> RecordedTrajectory:
    """Return a trajectory, collected or kept by an evaluation.

    Args:
        lake: the lake.
        name: its id, or the beginning of it that no other id has, of at least `SHORT_ID` characters.

    Raises:
        UnknownId: no trajectory has this id, or several ids begin so; the hint lists them.
    """
    kinds: dict[str, type[RecordedTrajectory]] = {
        "trajectories": Trajectory,
        "evaluation_trajectories": EvaluationTrajectory,
    }
    for table, kind in kinds.items():
        iterations = lake.read(table, ["iteration"], {"trajectory_id": name})["iteration"].to_pylist()
        if iterations and (rows := lake.rows(kind, {"iteration": iterations[0], "trajectory_id": name})):
            return rows[0]
    begin_so = trajectories_beginning(lake, name, tuple(kinds))
    if len(begin_so) == 1:
        return episode_of(lake, begin_so[0])
    if begin_so:
        problem = f"`trajectory_id`: {len(begin_so):,} trajectories begin with {name[:80]!r}."
        raise UnknownId(problem, f"Write more of the id: {', '.join(begin_so[:NAMED])}.")
    raise UnknownId(
        f"`trajectory_id`: there is no trajectory {name[:80]!r}.",
        f"`flywheel trajectories` finds ids; the first {SHORT_ID} characters of one are enough.",
    )


def steps_of(lake: Lake, row: RecordedTrajectory) -> Sequence[RecordedStep]:
    """Return the steps of a trajectory, collected or kept by an evaluation, in order."""
    where = {"iteration": row.iteration, "trajectory_id": row.trajectory_id}
    kind = EvaluationStep if isinstance(row, EvaluationTrajectory) else Step
    return sorted(lake.rows(kind, where), key=lambda one: one.step)


def _steps(lake: Lake, iteration: int) -> Iterator[Step]:
    with stream(lake, "iteration_steps", iteration=iteration) as batches:
        for batch in batches:
            yield from (Step.model_construct(**row) for row in batch.to_pylist())


def trajectories_beginning(
    lake: Lake, beginning: str, tables: Sequence[str] = ("trajectories", "evaluation_trajectories", "forgotten")
) -> list[str]:
    """Return the ids with this prefix, in order, including ids of forgotten trajectories.

    The result is empty for a prefix of fewer than `SHORT_ID` characters.
    """
    if len(beginning) < SHORT_ID:
        return []
    name = pads.field("trajectory_id")
    where = (name >= beginning) & (name < f"{beginning}{chr(sys.maxunicode)}")
    return sorted({name for table in tables for name in lake.read(table, ["trajectory_id"], where)[0].to_pylist()})


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
    each = 0 if method_of(config.train).source is DataSource.REPLIES else config.collect.practice_trajectories
    return CollectedCount(suite * config.collect.trajectories_per_task, practice * each)


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
