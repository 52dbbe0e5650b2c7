"""Judge trajectories whose environment has no verifier: the score is the reward."""

from typing import Any

from models.judges.judge import Judge
from models.judges.registry import case_of, verdict_of
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.tables.task import JUDGED


def with_judgement(
    config: Config, judge: Judge[Any] | None, planned: PlannedTrajectory, record: FinishedTrajectory
) -> FinishedTrajectory:
    """Add the judge's verdict, and its score as the reward, where the task has no verifier.

    A trajectory that failed by its own fault, such as a reply without an action, keeps its reward of 0 and is not
    judged. A judge that fails makes the trajectory an environment failure.
    """
    trajectory = record.trajectory
    if judge is None or planned.task.verifier != JUDGED or trajectory.failure_boundary is not None:
        return record
    pngs = {digest: seen.png for digest, seen in record.screenshots.items()}
    (judgement,) = judge.score([case_of(trajectory.instruction, record.steps, pngs, config.judge)], config.judge.votes)
    record.verdict = verdict_of(judge, config.judge, trajectory, judgement)
    if record.verdict is None:
        failed = {"reward": None, "success": None, "termination": "failure", "failure_boundary": "judge"}
        record.trajectory = trajectory.model_copy(update={**failed, "failure_reason": judgement.reason})
    else:
        scored = {"reward": judgement.score, "success": record.verdict.passed}
        record.trajectory = trajectory.model_copy(update=scored)
    return record
