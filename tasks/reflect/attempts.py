"""Select failed trajectories for correction, and plan and roll out attempts at each, within a number of steps."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby

from curation.reflection import CORRECTION, FailureSearch, hinted, led_nowhere, recoverable, shares, states_of
from models.families.dialects import format_actions
from models.policy import EXPLORERS, Policy
from models.proposers import PROPOSERS, Precedent, ProposerResources
from models.vlm import VlmPolicy
from rollout.actor import Actor
from rollout.replies import Write, admitting, recorded
from rollout.runner import roll_out_all
from rollout.trajectory import DISAGREES, Beginning, FinishedTrajectory, PlannedTrajectory, StepReply
from schemas.action import from_json
from schemas.config import Config
from schemas.observation import elements_of
from schemas.tables.reflection import Reflection
from schemas.tables.step import Step
from schemas.tables.task import JUDGED, GuiTask
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.collect.collect import write
from tasks.running.console import bar
from tasks.running.run import Run
from tasks.shared.policies import champion
from tasks.shared.reviews import decisions_of
from tasks.shared.suite import tasks_of
from tasks.shared.trajectories import trajectories_of
from tasks.shared.weights import load_policy

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


PIONEERS = 3
"""Maximum failures of a task that are searched at once while the task has no known success. A success becomes a
precedent for the other failures."""
DEAR = 3.0
"""Maximum cost of a correction, as a multiple of the steps per success in collection. If corrections of a task cost
more, its other failures are skipped."""


class Attempts:
    """Attempts at corrections, with their actors."""

    def __init__(self, run: Run, iteration: int, stack: ExitStack) -> None:
        self.run, self.iteration = run, iteration
        rolled = list(trajectories_of(run.lake, iteration))
        self.known: dict[str, list[Precedent]] = {}
        for one, steps in rolled:
            self._add_precedent(one, steps)
        self.actors, self.write = _proposers(run.config, run.lake, self.known, stack)
        self.versions = list(self.actors)
        """Versions of the proposers, which take turns."""
        self.stored = {one.trajectory_id: (one, steps) for one, steps in rolled if one.continues is not None}
        collected = [one for one, _ in rolled if one.continues is None]
        self.plain = sum(one.n_steps for one in collected) / max(1, sum(one.success is True for one in collected))
        """Steps per success in collection."""
        self.used = sum(one.n_steps for one, _ in self.stored.values())

    def all_of(self, cases: Sequence[ReflectionCase]) -> None:
        """Roll out attempts in rounds, until every search has ended or the steps are used up."""
        while planned := self._round(cases):
            self.roll_out([one for one, _ in planned], "reflect")
            for one, case in planned:
                self._fold(case, one)

    def roll_out(self, planned: Sequence[PlannedTrajectory], label: str) -> None:
        """Roll out planned trajectories and store them. `label` is the text on the progress bar."""
        roll_out_all(self.run.config, planned, self._actors_of, self._keep, bar, label, for_data=True)

    def _actors_of(self, planned: PlannedTrajectory) -> list[Actor]:
        return [self.actors.get(planned.policy_version) or self.actors[self.versions[0]]]

    def _round(self, cases: Sequence[ReflectionCase]) -> list[tuple[PlannedTrajectory, ReflectionCase]]:
        """Return the next attempt of each open search, within the remaining steps."""
        left, found = self.run.config.reflect.steps - self.used, list[tuple[PlannedTrajectory, ReflectionCase]]()
        opened: Counter[str] = Counter()
        for case in cases:
            task = case.task.task_id
            if not case.attempts:
                if self._too_expensive(cases, task):
                    case.gave_up = "corrections of its task are dear"
                if opened[task] >= PIONEERS and not self.known.get(task):
                    continue
            planned = self._next(case)
            if planned is not None and planned.most_steps <= left:
                left -= planned.most_steps
                found.append((planned, case))
                opened[task] += 1
        return found

    def _too_expensive(self, cases: Sequence[ReflectionCase], task: str) -> bool:
        """Whether the corrections of a task so far, and one further correction, cost too many steps."""
        tried = [case for case in cases if case.task.task_id == task]
        spent = sum(trajectory.n_steps for case in tried for trajectory, _ in case.attempts)
        return spent > DEAR * self.plain * (1 + sum(case.search.best is not None for case in tried))

    def _next(self, case: ReflectionCase) -> PlannedTrajectory | None:
        """Return the next attempt that is not in the lake yet. Stored attempts are added to the case."""
        while (planned := self._planned(case)) is not None:
            if planned.trajectory_id not in self.stored:
                return planned
            self._fold(case, planned)
        return None

    def _fold(self, case: ReflectionCase, planned: PlannedTrajectory) -> None:
        trajectory, steps = self.stored[planned.trajectory_id]
        case.fold((trajectory, steps), self._recovers(planned))
        self._add_precedent(trajectory, steps)

    def _add_precedent(self, trajectory: Trajectory, steps: Sequence[Step]) -> None:
        """Record a success as a precedent for further attempts."""
        if trajectory.success:
            self.known.setdefault(trajectory.task_id, []).extend(precedents_of(trajectory, steps))

    def _planned(self, case: ReflectionCase) -> PlannedTrajectory | None:
        if case.gave_up:
            return None
        state = case.search.next()
        if state is not None:
            return self._correcting(case, state)
        if case.asked_to_recover or case.search.best is None or not self.run.config.reflect.recover:
            return None
        case.asked_to_recover = True
        return self._recovering(case, case.search.best)

    def _correcting(self, case: ReflectionCase, state: int) -> PlannedTrajectory:
        attempt = case.search.failed.get(state, 0)
        version = self.versions[attempt % len(self.versions)]
        avoid = led_nowhere([(case.failed, case.steps), *case.others, *case.attempts], case.steps[state])
        beginning = Beginning(
            case.failed.trajectory_id,
            screens_of(case.steps, state),
            tuple(recorded(step, self.write) for step in case.steps[:state]),
            avoid,
            self.run.config.reflect.ahead,
        )
        return self._planned_as(case.failed, case.task, beginning, version, attempt)

    def _recovering(self, case: ReflectionCase, state: int) -> PlannedTrajectory | None:
        """Plan a trajectory that repeats the error and then the actions that succeeded in its place."""
        _, performed = case.won[state]
        replayed, after = case.steps[: state + 1], case.steps[state].next_screenshot
        known = [recorded(step, self.write) for step in performed[state:]]
        if not recoverable(case.failed, case.steps, state) or state + 1 + len(known) > case.task.max_steps:
            return None
        beginning = Beginning(
            case.failed.trajectory_id,
            (*(step.screenshot for step in replayed), after or ""),
            (*(recorded(step, self.write) for step in replayed), admitting(known[0]), *known[1:]),
            ahead=0,
        )
        return self._planned_as(case.failed, case.task, beginning, performed[state].policy_version, 0)

    def going_on(
        self, rolled: Rolled, task: GuiTask, state: int, reply: StepReply, tried: Sequence[Rolled], attempt: int
    ) -> PlannedTrajectory:
        """Plan a trajectory that replays steps up to a state, performs a reply, and continues with an actor's steps."""
        trajectory, steps = rolled
        beginning = Beginning(
            trajectory.trajectory_id,
            screens_of(steps, state),
            (*(recorded(step, self.write) for step in steps[:state]), reply),
            led_nowhere([rolled, *tried], steps[state]),
            ahead=task.max_steps,
        )
        version = self.versions[attempt % len(self.versions)]
        return self._planned_as(trajectory, task, beginning, version, attempt)

    def _planned_as(
        self, trajectory: Trajectory, task: GuiTask, beginning: Beginning, version: str, attempt: int
    ) -> PlannedTrajectory:
        return PlannedTrajectory(
            lake_id=self.run.lake.lake_id,
            run_id=self.run.run_id,
            iteration=self.iteration,
            task=task,
            seed=trajectory.seed,
            policy=CORRECTION,
            policy_version=version,
            attempt=attempt,
            temperature=1.0,
            beginning=beginning,
        )

    @staticmethod
    def _recovers(planned: PlannedTrajectory) -> bool:
        beginning = planned.beginning
        return beginning is not None and len(beginning.replies) > beginning.replayed

    def _keep(self, records: list[FinishedTrajectory]) -> None:
        write(self.run.lake, records)
        for record in records:
            self.stored[record.trajectory.trajectory_id] = (record.trajectory, record.steps)
            self.used += record.trajectory.n_steps


def precedents_of(trajectory: Trajectory, steps: Sequence[Step]) -> list[Precedent]:
    """Return the steps of a success that changed the screen or ended the trajectory, without replayed steps."""
    return [
        Precedent(trajectory.instruction, step.step, tuple(elements_of(step.elements)), from_json(step.actions[0]))
        for step in steps[trajectory.replayed :]
        if len(step.actions) == 1 and (step.next_screenshot != step.screenshot or step is steps[-1])
    ]


def _proposers(
    config: Config, lake: Lake, known: Mapping[str, Sequence[Precedent]], stack: ExitStack
) -> tuple[dict[str, Actor], Write]:
    """Return the proposers as actors by version, and the champion's format of actions for past steps in its prompt."""
    version, explorer = champion(lake), EXPLORERS.class_of(config.collect.explorer)
    loaded: list[VlmPolicy] = []

    def policy() -> Policy:
        if not loaded:
            loaded.append(load_policy(config, lake, version.policy_version))
        return loaded[0]

    options = PROPOSERS.read(config.reflect)
    names = [name for name in options if name != "policy" or version.kind != "initial"]
    resources = ProposerResources(policy, explorer, known)
    made = [PROPOSERS.class_of(name)(options[name], resources) for name in names or ["explorer"]]
    actors = {one.version: stack.enter_context(Actor(one, 1.0)) for one in made}
    return actors, loaded[0].family.write_actions if loaded else lambda actions, _: format_actions(actions)


def screens_of(steps: Sequence[Step], state: int) -> tuple[str, ...]:
    """Return the expected screens of a replay up to a state, the state's own screen included."""
    return tuple(step.screenshot for step in steps[: state + 1])
