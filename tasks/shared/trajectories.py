"""An iteration's trajectories with their steps, as typed rows: what the filter and the annotation go through."""

from collections.abc import Iterator
from itertools import groupby

from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from storage.catalog import stream
from storage.lake import Lake


def trajectories_of(lake: Lake, iteration: int) -> Iterator[tuple[Trajectory, list[Step]]]:
    """Every trajectory of an iteration with its stored steps in order; none where it ended before its first."""
    left = {one.trajectory_id: one for one in lake.rows(Trajectory, {"iteration": iteration})}
    for name, steps in groupby(_steps(lake, iteration), key=lambda step: step.trajectory_id):
        trajectory = left.pop(name, None)
        if trajectory is not None:
            yield trajectory, list(steps)
    yield from ((trajectory, []) for trajectory in left.values())


def _steps(lake: Lake, iteration: int) -> Iterator[Step]:
    with stream(lake, "iteration_steps", iteration=iteration) as batches:
        for batch in batches:
            yield from (Step.model_construct(**row) for row in batch.to_pylist())
