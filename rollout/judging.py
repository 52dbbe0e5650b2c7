"""Judges in the place of verifiers: the reward of a play whose environment has none."""

from models.judges.endpoint import EndpointJudge
from models.judges.judge import Case, FakeJudge, Judge
from rollout.session import Play, Record
from schemas.config import Config
from schemas.config.sections import JudgeConfig
from schemas.failure import UsageError
from schemas.task import JUDGED


def judge_of(config: JudgeConfig) -> Judge:
    """The configured judge.

    Raises:
        UsageError: there is none, or its address is not given.
    """
    if config.kind == "fake":
        return FakeJudge()
    if config.kind == "none":
        raise UsageError("`judge.kind`: a task without a verifier needs a judge.", "Set judge.kind to endpoint.")
    for field in ("url", "model"):
        if not getattr(config, field):
            raise UsageError(f"`judge.{field}` is empty.", "An endpoint has a base url and the name of its model.")
    return EndpointJudge(config)


def with_judgement(config: Config, judge: Judge | None, play: Play, record: Record) -> Record:
    """The record with the judge's score as its reward, where the task has no verifier.

    A play that failed by its own fault, such as a reply without an action, keeps its reward of 0 and is not judged. A
    judge that fails makes the play an environment failure.
    """
    if judge is None or play.task.verifier != JUDGED or record.trajectory.failure_boundary is not None:
        return record
    (judgement,) = judge.score([_case(record, config.judge.screens)])
    if judgement.score is None:
        failed = {"reward": None, "success": None, "termination": "failure", "failure_boundary": "judge"}
        record.trajectory = record.trajectory.model_copy(update={**failed, "failure_reason": judgement.reason})
        return record
    scored = {"reward": judgement.score, "success": judgement.score >= config.judge.threshold}
    record.trajectory = record.trajectory.model_copy(update=scored)
    record.judged = f"{judge.name} gives {judgement.score:.2f}: {judgement.reason}"
    return record


def _case(record: Record, screens: int) -> Case:
    shown = [step.screenshot for step in record.steps]
    if record.steps and record.steps[-1].next_screenshot:
        shown.append(record.steps[-1].next_screenshot)
    pngs = tuple(record.screenshots[digest][0] for digest in shown[-screens:])
    return Case(record.trajectory.instruction, tuple(step.raw_text for step in record.steps), pngs)
