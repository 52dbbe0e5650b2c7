"""Inputs of the makers: an environment's world, and the tasks that others can be made from."""

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
        iteration: only tasks accepted for earlier iterations are used, so that a continued run makes the same.
        evidence: iterations whose failures count; all before this one if not given.
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
    """Return an environment's tasks that data is collected of; of made ones, those that may be used."""
    tasks = [one for one in tasks_of(config, lake) if one.environment == name and one.split == "train"]
    return [one for one in tasks if one.setup is None or one.task_id in made]


def _parent(task: GuiTask, made: Proposal | None, counts: tuple[int, int]) -> Parent:
    failures, successes = counts
    if made is None:
        return Parent(task.task_id, task.instruction, task.max_steps, failures=failures, successes=successes)
    goals, initial = from_data(json.loads(made.goals)), json.loads(made.initial)
    return Parent(task.task_id, task.instruction, task.max_steps, goals, initial, failures, successes)


def _counts(lake: Lake, first: int, end: int) -> dict[str, tuple[int, int]]:
    """Return failures and successes by task."""
    rows = lake.read("trajectories", ["iteration", "task_id", "success"]).to_pylist()
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        if first <= row["iteration"] < end and row["success"] is not None:
            failures, successes = counts.get(row["task_id"], (0, 0))
            counts[row["task_id"]] = failures + (not row["success"]), successes + row["success"]
    return counts
