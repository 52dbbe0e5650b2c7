"""Verify reviewers' corrections in a sandbox before training uses them.

The recorded steps before the corrected step are replayed in a new sandbox for the same task and seed, as in a
reflection. Then the reviewer's action is performed, and a proposer continues. If the attempt succeeds, training uses it
with all following steps. If the action itself ends the task without success, training no longer uses the correction.
Stored attempts are not repeated, so a kill loses nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from common.text import counted
from curation.annotation import TrajectoryRoute, annotations_of
from rollout.replies import corrected
from rollout.trajectory import PlannedTrajectory
from schemas.action import from_json
from schemas.config import Config
from schemas.table import utc_now
from schemas.tables.pair import Pair
from schemas.tables.task import GuiTask
from storage.catalog import answers
from storage.lake import Lake
from tasks.filter import decide
from tasks.reflect.attempts import Attempts, Rolled, can_be_replayed
from tasks.running.boundary import boundary
from tasks.running.console import err
from tasks.running.run import Run, run_of
from tasks.shared.reviews import settle
from tasks.shared.suite import tasks_of
from tasks.shared.trajectories import stored

State = Literal["verified", "refuted", "unverified"]


@dataclass(frozen=True, slots=True)
class Corrected:
    """A valid correction and its state, with the columns of `storage/queries/views/people_corrections.sql`."""

    trajectory_id: str
    step: int
    review_id: str
    iteration: int
    person: str
    action: str
    thought: str
    same: bool
    state: State
    shown_by: str | None
    tried_by: str | None
    tries: int
    other: bool
    task_id: str


@dataclass(slots=True)
class _TriedCorrection:
    """A correction that is being verified."""

    given: Corrected
    rolled: Rolled
    task: GuiTask
    tried: list[Rolled] = field(default_factory=list[Rolled])

    @property
    def over(self) -> bool:
        """Whether further attempts are useless.

        An attempt succeeded, the action itself ended the task, or the sandbox did not reproduce the recorded screens.
        """
        return any(
            one.success is not False or (one.n_steps == one.replayed + 1 and one.termination != "max_steps")
            for one, _ in self.tried
        )


@boundary("verify")
def verify_corrections(config: Config) -> Mapping[str, int]:
    """Run `verify_people`."""
    return verify_people(run_of(config, create=False))


def verify_people(run: Run) -> Mapping[str, int]:
    """Try every unverified correction of a reviewer in a sandbox, if `reflect.people` is set. Return counts by
    state."""
    settle(run.lake)
    if not (run.config.reflect.people and run.lake.count("reviews", {"decision": "correct"})):
        return {}
    waiting = _waiting(run, corrections_by_people(run.lake))
    for iteration, group in groupby(waiting, key=lambda one: one.given.iteration):
        with ExitStack() as stack:
            _try(run, iteration, list(group), Attempts(run, iteration, stack))
    found = corrections_by_people(run.lake)
    _prefer(run.lake, found)
    states = Counter[str](one.state for one in found)
    if waiting:
        listed = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        err().print(f"people: {counted(len(waiting), 'correction')} tried; in all {listed}")
    return dict(states)


def corrections_by_people(lake: Lake, versions: Mapping[str, int] | None = None) -> list[Corrected]:
    """Return the valid corrections at pinned table versions; at the current versions if not given."""
    return answers(lake, Corrected, "people_corrections", versions)


def _waiting(run: Run, found: Sequence[Corrected]) -> list[_TriedCorrection]:
    """Return the corrections to try, of tasks that can be replayed, by iteration."""
    tasks = {one.task_id: one for one in tasks_of(run.config, run.lake) if can_be_replayed(one)}
    most = run.config.reflect.attempts
    left = [
        one
        for one in found
        if one.state == "unverified" and not one.same and not one.other and one.tries < most and one.task_id in tasks
    ]
    rolled = {one.trajectory_id: (one, steps) for one, steps in stored(run.lake, {one.trajectory_id for one in left})}
    return [
        _TriedCorrection(one, rolled[one.trajectory_id], tasks[one.task_id])
        for one in left
        if _repeatable(rolled[one.trajectory_id], one.step)
    ]


def _repeatable(rolled: Rolled, step: int) -> bool:
    trajectory, steps = rolled
    return trajectory.split == "train" and step < len(steps) and all(one.actions for one in steps[:step])


def _try(run: Run, iteration: int, group: Sequence[_TriedCorrection], attempts: Attempts) -> None:
    """Roll out attempts until all corrections are decided, then filter and annotate the attempts."""
    names: set[str] = set()
    for number in range(run.config.reflect.attempts):
        planned = [(one, _planned(one, attempts, number)) for one in group if not one.over]
        attempts.roll_out([plan for _, plan in planned if plan.trajectory_id not in attempts.stored], "people")
        for one, plan in planned:
            one.tried.append(attempts.stored[plan.trajectory_id])
            names.add(plan.trajectory_id)
    decisions, *_ = decide(run.config, run.lake, iteration, names)
    by_name = {one.trajectory_id: TrajectoryRoute.of(one) for one in decisions}
    steps = (steps for name, (_, steps) in attempts.stored.items() if name in names)
    run.lake.append("annotations", list(annotations_of(by_name, steps, utc_now())))


def _planned(one: _TriedCorrection, attempts: Attempts, number: int) -> PlannedTrajectory:
    given, (_, steps) = one.given, one.rolled
    reply = corrected(steps[given.step], given.person, given.thought, from_json(given.action), attempts.write)
    return attempts.going_on(one.rolled, one.task, given.step, reply, one.tried, number)


def _prefer(lake: Lake, found: Sequence[Corrected]) -> None:
    """Give the pair of a verified correction the context of the successful attempt, as in a reflection."""
    shown = {one.review_id: one.shown_by for one in found if one.shown_by}
    rows = lake.rows(Pair, {"pair_id": sorted(shown)}) if shown else []
    better = [
        one.model_copy(update={"trajectory_id": shown[one.pair_id], "verified": True})
        for one in rows
        if not one.verified
    ]
    lake.upsert("pairs", better)
