"""Read trajectories with their steps, as typed rows."""

import sys
from collections.abc import Collection, Iterator
from itertools import groupby

import pyarrow.dataset as pads

from schemas.failure import UsageError
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from storage.catalog import stream
from storage.lake import Lake

SHORT_ID = 8
"""Number of characters of an id on pages."""


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
    """Return a trajectory by its id.

    Raises:
        UsageError: no trajectory has this id.
    """
    iterations = lake.read("trajectories", ["iteration"], {"trajectory_id": name})["iteration"].to_pylist()
    found = lake.rows(Trajectory, {"iteration": iterations[0], "trajectory_id": name}) if iterations else []
    if not found:
        raise UsageError(f"`trajectory_id`: there is no trajectory {name[:80]!r}.")
    return found[0]


def _steps(lake: Lake, iteration: int) -> Iterator[Step]:
    with stream(lake, "iteration_steps", iteration=iteration) as batches:
        for batch in batches:
            yield from (Step.model_construct(**row) for row in batch.to_pylist())


def trajectories_beginning(lake: Lake, beginning: str) -> list[str]:
    """Return the ids with this prefix, in order, including ids of forgotten trajectories.

    The result is empty for a prefix of fewer than `SHORT_ID` characters.
    """
    if len(beginning) < SHORT_ID:
        return []
    name = pads.field("trajectory_id")
    where = (name >= beginning) & (name < f"{beginning}{chr(sys.maxunicode)}")
    tables = ("trajectories", "forgotten")
    return sorted({name for table in tables for name in lake.read(table, ["trajectory_id"], where)[0].to_pylist()})
