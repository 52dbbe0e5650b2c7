"""Select failed trajectories for correction, with the attempts at each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from curation.reflection import FailureSearch, hinted, shares, states_of
from rollout.trajectory import DISAGREES
from schemas.config import Config
from schemas.tables.reflection import Reflection
from schemas.tables.step import Step
from schemas.tables.task import JUDGED, GuiTask
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.shared.decisions import decisions_of
from tasks.shared.suite import tasks_of
from tasks.shared.trajectories import trajectories_of

FIRST = ("policy", "relay", "explorer")
"""Actors in the order in which their failures are corrected. A policy learns most from its own errors."""
Rolled = tuple[Trajectory, Sequence[Step]]


@dataclass(slots=True)
class ReflectionCase:
    """A failed trajectory to correct."""

    failed: Trajectory
    steps: Sequence[Step]
    task: GuiTask
    search: FailureSearch
    others: Sequence[Rolled] = ()
    """Further trajectories of the same task and seed."""
    attempts: list[Rolled] = field(default_factory=list[Rolled])
    won: dict[int, Rolled] = field(default_factory=dict[int, Rolled])
    """Successful attempts, by state."""
    recovered: Rolled | None = None
    asked_to_recover: bool = False
    gave_up: str = ""

    def fold(self, rolled: Rolled, recovers: bool) -> None:
        """Add the result of an attempt to the case."""
        trajectory, _ = rolled
        self.attempts.append(rolled)
        if (trajectory.failure_reason or "").startswith(DISAGREES):
            self.gave_up = "the sandbox did not repeat it"
        elif recovers:
            self.recovered = rolled if trajectory.success else None
        else:
            self.search.note(trajectory.replayed, trajectory.success is True)
            if trajectory.success:
                self.won[trajectory.replayed] = rolled


def cases_of(config: Config, lake: Lake, iteration: int) -> list[ReflectionCase]:
    """Return the failed trajectories to correct.

    Their tasks are deterministic training tasks with a verifier, their seeds are training seeds, and no gate has
    quarantined them.
    """
    tasks = {one.task_id: one for one in tasks_of(config, lake) if can_be_replayed(one)}
    decisions = decisions_of(lake, iteration)
    rolled = [one for one in trajectories_of(lake, iteration) if one[0].continues is None]
    errors = [one for one in lake.rows(Reflection, {"iteration": iteration}) if one.last_step_correct is False]
    wrong = {one.trajectory_id: one.step for one in sorted(errors, key=lambda one: -one.step)}
    by_name = {
        trajectory.trajectory_id: (trajectory, steps)
        for trajectory, steps in rolled
        if trajectory.success is False
        and trajectory.split == "train"
        and trajectory.task_id in tasks
        and steps
        and (decided := decisions.get(trajectory.trajectory_id))
        and decided.route == "ct"
    }
    found: list[ReflectionCase] = []
    for name in _chosen(by_name, config.reflect.trajectories):
        failed, steps = by_name[name]
        task, known = tasks[failed.task_id], decisions[name].error_step
        states = states_of(failed, steps, task.max_steps - config.reflect.ahead)
        hint = hinted(states, steps, wrong.get(name) if known is None else known)
        search = FailureSearch(states, config.reflect.attempts, hint)
        others = [
            one for one in rolled if (one[0].task_id, one[0].seed) == (failed.task_id, failed.seed) and one[0] != failed
        ]
        found.append(ReflectionCase(failed, steps, task, search, others))
    return found


def can_be_replayed(task: GuiTask) -> bool:
    """Whether trajectories of a task can be replayed and corrected."""
    return task.split == "train" and task.verifier != JUDGED and task.deterministic


def _chosen(failed: Mapping[str, Rolled], most: int) -> list[str]:
    """Return at most `most` ids: failures of the policy before failures of the explorer, and the tasks in turn."""

    def order(name: str) -> tuple[int, str, str]:
        trajectory, _ = failed[name]
        rank = FIRST.index(trajectory.policy) if trajectory.policy in FIRST else len(FIRST)
        return rank, trajectory.task_id, name

    ordered = sorted(failed, key=order)
    groups = {key: list(names) for key, names in groupby(ordered, lambda name: order(name)[:2])}
    found: list[str] = []
    for rank in range(len(FIRST) + 1):
        found += shares({task: names for (at, task), names in groups.items() if at == rank}, most - len(found))
    return found


def corrections_of(lake: Lake, iteration: int) -> Iterator[Rolled]:
    """Yield the stored attempts of an iteration."""
    return ((one, steps) for one, steps in trajectories_of(lake, iteration) if one.continues is not None)
