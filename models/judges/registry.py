"""Makes the judge that a config names, and turns its judgements into verdicts of the gate `judge`."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.judges.judge import Judge, JudgeCase, Judgement
from schemas.config.curating import JudgeConfig
from schemas.config.section import Section
from schemas.failure import UsageError
from schemas.registry import Registry, options_of
from schemas.table import utc_now
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import Verdict

NONE = "none"
GATE = "judge"
JUDGES: Registry[Judge[Any]] = Registry(
    "judge.kind",
    Judge,
    {
        "fake": "models.judges.judge:FakeJudge",
        "endpoint": "models.judges.endpoint:EndpointJudge",
        "local": "models.judges.local:LocalJudge",
    },
)


def judge_of(config: JudgeConfig) -> Judge[Any] | None:
    """Makes the configured judge, or None if `judge.kind` is `none`; raises UsageError for an invalid judge."""
    found = kind_of(config)
    if found is None:
        return None
    judge = found[0](found[1], config.tries)
    if config.votes > 1 and not judge.draws:
        raise UsageError(
            f"`judge.votes={config.votes}`: {judge.name} gives the same answer each time.",
            "Set judge.votes=1; an endpoint's answers differ with judge.options.temperature=1.",
        )
    return judge


def kind_of(config: JudgeConfig) -> tuple[type[Judge[Any]], Section] | None:
    """Finds the configured judge's class with its options; None if `judge.kind` is `none`.

    Raises:
        UsageError: the judge or an option is unknown, or there are options without a judge.
    """
    if config.kind != NONE:
        kind = JUDGES.class_of(config.kind)
        return kind, options_of(kind.section, config.options, "judge.options")
    for name, given in (("options", config.options), ("votes", config.votes > 1), ("pairwise", config.pairwise)):
        if given:
            raise UsageError(f"`judge.{name}`: there is no judge that reads it.", "Set `judge.kind`, or remove it.")
    return None


def required_judge(config: JudgeConfig) -> Judge[Any]:
    """Makes the configured judge; raises UsageError if none is configured."""
    judge = judge_of(config)
    if judge is None:
        raise UsageError("`judge.kind`: there is no judge to ask.", f"Set it to {' or '.join(JUDGES.names)}.")
    return judge


def case_of(instruction: str, steps: Sequence[Step], pngs: Mapping[str, bytes], config: JudgeConfig) -> JudgeCase:
    """Builds a case from an ended or stored trajectory; `pngs` holds at least the screens of `screens_of`."""
    shown = screens_of(steps, config)
    return JudgeCase(
        instruction,
        tuple(step.raw_text for step in steps),
        tuple(pngs[digest] for digest in shown),
        tuple(action for step in steps for action in step.actions or [None]),
    )


def screens_of(steps: Sequence[Step], config: JudgeConfig) -> list[str]:
    """Lists the sha256 of a trajectory's last screens; the final screen is the last."""
    seen = [step.screenshot for step in steps]
    if steps and steps[-1].next_screenshot:
        seen.append(steps[-1].next_screenshot)
    return seen[-config.screens :]


def version_of(judge: Judge[Any], config: JudgeConfig) -> str:
    """Computes the version of the judge's verdicts.

    It is the judge's own version, with the number of screens, the score's threshold and, if above 1, the number of
    votes.
    """
    votes = f" votes={config.votes}" if config.votes > 1 else ""
    return f"{judge.version} screens={config.screens} threshold={config.threshold:g}{votes}"


def verdict_of(judge: Judge[Any], config: JudgeConfig, trajectory: Trajectory, judgement: Judgement) -> Verdict | None:
    """Turns a judgement of a trajectory into a verdict; None if the judge failed."""
    if judgement.score is None:
        return None
    passed = judgement.score >= config.threshold
    return Verdict(
        trajectory_id=trajectory.trajectory_id,
        gate=GATE,
        gate_version=version_of(judge, config),
        iteration=trajectory.iteration,
        passed=passed,
        score=judgement.score,
        error_step=None,
        reason=f"{judge.name} gives {judgement.score:.2f}: {judgement.reason}",
        route="sft" if passed else "ct",
        created_at=utc_now(),
    )
