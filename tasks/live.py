"""Store, judge, filter and annotate a trajectory of a live session."""

from collections.abc import Sequence

from curation.annotation import TrajectoryRoute, annotations_of
from curation.gates.registry import gates_of, verdicts_of
from curation.reflections import reflections_of
from models.judges.registry import required_judge
from rollout.judging import with_judgement
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.table import utc_now
from schemas.tables.review import Review
from schemas.tables.task import JUDGED
from storage.lake import Lake
from tasks.collect.records import write
from tasks.shared.agreements import Standing
from tasks.shared.gate_facts import Known
from tasks.shared.reviews import take_effect
from tasks.think.think import thinkable, thinkers_of
from tasks.think.thoughts import IterationThoughts
from tasks.think.walk import ThinkingWalk


def store(
    config: Config, lake: Lake, planned: PlannedTrajectory, record: FinishedTrajectory, reviews: Sequence[Review]
) -> FinishedTrajectory:
    """Write a finished trajectory, then its verdicts, annotations and reviews.

    If a later part fails, the trajectory stays stored, and `flywheel refilter` does the rest.
    """
    judge = required_judge(config.judge) if planned.task.verifier == JUDGED else None
    record = with_judgement(config, judge, planned, record)
    trajectory, now = record.trajectory, utc_now()
    write(lake, [record])
    probation = Standing(lake, config.judge).probation(record.verdict.gate_version) if record.verdict else ""
    context = Known(lake, trajectory.iteration).context(trajectory, record.verdict, probation)
    *verdicts, decision = verdicts_of(gates_of(config.filter), trajectory, record.steps, context, now)
    decided = TrajectoryRoute.of(decision)
    lake.append("verdicts", [*verdicts, decision])
    if decision.route != "none":
        lake.append("reflections", reflections_of(trajectory, record.steps, now))
    free = thinkers_of(config, lake, free=True)
    IterationThoughts(config, lake, trajectory.iteration, free).of(
        [ThinkingWalk(trajectory, thinkable(record.steps, decided))]
    )
    lake.append("annotations", list(annotations_of({trajectory.trajectory_id: decided}, [record.steps], now)))
    for number in range(len(reviews)):
        take_effect(lake, trajectory, reviews[: number + 1])
    return record
