"""Collect the inputs of makers: the world of an environment, and the tasks from which new tasks can be made."""

import json
from collections.abc import Iterable

from curation.synthesis.goal import from_data
from curation.synthesis.maker import MakerInputs, Parent
from environments.registry import usable
from schemas.config import Config
from schemas.tables.proposal import Proposal
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.shared.suite import tasks_of


def materials(config: Config, lake: Lake, iteration: int, evidence: tuple[int, int] | None) -> list[MakerInputs]:
    """Return the inputs for each environment whose sandboxes can be set to a state.

    Args:
        config: the resolved config.
        lake: the lake with proposals and trajectories.
        iteration: iteration of the new tasks. Only tasks of earlier iterations are used, so a resumed run makes the
            same tasks.
        evidence: iterations whose failures count; all earlier iterations if not given.
    """
    first, end = evidence or (0, iteration)
    made = {one.task_id: one for one in lake.rows(Proposal, {"status": "accepted"}) if one.iteration < iteration}
    counts = _counts(lake, first, min(end, iteration))
    found: list[MakerInputs] = []
    for environment in usable(config):
        world = environment.world
        if world is None:
            continue
        own = [environment.task(root.task) for root in world.roots.values()]
        known = {one.task_id: one for one in [*own, *_trained(config, lake, environment.name, made)]}
        held = {one.task_id for one in tasks_of(config, lake) if one.split != "train"}
        parents = [
            _parent(task, made.get(name), counts.get(name, (0, 0))) for name, task in known.items() if name not in held
        ]
        found.append(MakerInputs(environment.name, world, parents, environment.layout))
    return found


def _trained(config: Config, lake: Lake, name: str, made: Iterable[str]) -> list[GuiTask]:
    """Return the training tasks of an environment: tasks of the catalog, and the given made tasks."""
    tasks = [one for one in tasks_of(config, lake) if one.environment == name and one.split == "train"]
    return [one for one in tasks if one.setup is None or one.task_id in made]


def _parent(task: GuiTask, made: Proposal | None, counts: tuple[int, int]) -> Parent:
    failures, successes = counts
    if made is None:
        return Parent(task.task_id, task.instruction, task.max_steps, failures=failures, successes=successes)
    goals, initial = from_data(json.loads(made.goals)), json.loads(made.initial)
    return Parent(task.task_id, task.instruction, task.max_steps, goals, initial, failures, successes)


def _counts(lake: Lake, first: int, end: int) -> dict[str, tuple[int, int]]:
    """Return the numbers of failures and successes by task."""
    rows = lake.read("trajectories", ["iteration", "task_id", "success"]).to_pylist()
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        if first <= row["iteration"] < end and row["success"] is not None:
            failures, successes = counts.get(row["task_id"], (0, 0))
            counts[row["task_id"]] = failures + (not row["success"]), successes + row["success"]
    return counts
