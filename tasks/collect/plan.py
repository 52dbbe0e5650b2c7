"""Plan the trajectories of an iteration from the curriculum's choices, and list the finished trajectories."""

import random
from collections.abc import Mapping
from types import MappingProxyType

from curation.curriculum import seeds
from environments.registry import left_out
from models.policy import EXPLORERS
from rollout.trajectory import PlannedTrajectory
from schemas.failure import UsageError
from schemas.tables.curriculum import CurriculumChoice
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.running.run import Run
from tasks.shared.suite import tasks_of
from tasks.train.groups import planned_groups


def plan(
    run: Run, iteration: int, version: str, further: Mapping[str, int] = MappingProxyType({})
) -> list[PlannedTrajectory]:
    """Return all trajectories of an iteration, in a shuffled order. The result depends only on the arguments.

    Args:
        run: the run.
        iteration: the iteration.
        version: version of the policy.
        further: number of groups beyond the curriculum's choices, by task.
    """
    config = run.config
    tasks = {task.task_id: task for task in tasks_of(config, run.lake)}
    explorer = EXPLORERS.class_of(config.collect.explorer).version
    planned: list[PlannedTrajectory] = []
    for choice in choices_of(run, iteration):
        if (task := tasks.get(choice.task_id)) is None:
            problem = f"Iteration {iteration} is to play {choice.task_id}, which is not in the suite any more."
            raise UsageError(problem, "Put it back into `suite.tasks` until the iteration is finished.")
        for kind, count in choice.trajectories.items():
            if kind == "policy" and config.train.in_groups:
                whole = count + further.get(choice.task_id, 0) * config.train.group.size
                planned += planned_groups(run, iteration, task, whole, version)
                continue
            planned += [
                _planned(run, iteration, task, seed, kind, explorer if kind == "explorer" else version)
                for seed in seeds(config.seed, iteration, task.task_id, kind, count)
            ]
    random.Random(iteration).shuffle(planned)
    if config.train.stream.on:  # the trajectories of a group are adjacent, so that the group finishes soon
        begins = {one.group_id: at for at, one in enumerate(planned)}
        planned.sort(key=lambda one: (begins[one.group_id], one.attempt))
    return planned


def choices_of(run: Run, iteration: int) -> list[CurriculumChoice]:
    """Return the curriculum's choices, without tasks of environments that are now left out."""
    chosen, out = run.lake.rows(CurriculumChoice, {"iteration": iteration}), left_out(run.config)
    return [one for one in chosen if one.task_id.partition("/")[0] not in out]


def finished(lake: Lake, iteration: int) -> dict[str, str | None]:
    """Return the failure boundary (or None) of every stored trajectory of an iteration, by id."""
    rows = lake.read("trajectories", ["trajectory_id", "failure_boundary"], {"iteration": iteration}).to_pylist()
    return {row["trajectory_id"]: row["failure_boundary"] for row in rows}


def _planned(run: Run, iteration: int, task: GuiTask, seed: int, kind: str, version: str) -> PlannedTrajectory:
    relay_step = 1 + random.Random(seed).randrange(max(1, min(4, task.max_steps - 1))) if kind == "relay" else None
    return PlannedTrajectory(
        lake_id=run.lake.lake_id,
        run_id=run.run_id,
        iteration=iteration,
        task=task,
        seed=seed,
        policy=kind,
        policy_version=version,
        temperature=1.0 if kind == "explorer" else run.config.temperature,
        relay_step=relay_step,
    )
