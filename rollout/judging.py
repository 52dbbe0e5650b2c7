"""Judge trajectories of tasks without a verifier. The judge's score is the reward."""

from typing import Any

from models.judges.judge import Judge
from models.judges.registry import case_of, verdict_of
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.tables.task import JUDGED


def with_judgement(
    config: Config, judge: Judge[Any] | None, planned: PlannedTrajectory, record: FinishedTrajectory
) -> FinishedTrajectory:
    """Add the judge's verdict to a trajectory of a task without a verifier, with the score as the reward.

    A trajectory that failed because of the policy, such as a reply without an action, keeps its reward of 0 and is not
    judged. If the judge fails, the trajectory becomes an environment failure.
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
