"""Build the desk's typed rows of a trajectory from the lake, the same for pages and for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from common.text import legible
from curation.reviews import standing
from models.judges.registry import GATE as JUDGE
from schemas.observation import elements_of
from schemas.tables.annotation import Annotation
from schemas.tables.evaluation_trajectory import EvaluationTrajectory
from schemas.tables.review import Review
from schemas.tables.step import RecordedStep
from schemas.tables.task import short_names
from schemas.tables.verdict import DECISION, PERSON, Verdict
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.reviews import reviews_of
from tasks.shared.trajectories import episode_of, steps_of, trajectory_of


class _Viewed(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class ThoughtView(_Viewed):
    """A thought that was written later for a step."""

    author: str
    version: str | None
    patterns: list[str]
    thought: str


class StepView(_Viewed):
    """One step; points are in the action, in fractions of the screen."""

    step: int
    screenshot: str
    next_screenshot: str | None
    width: int
    height: int
    thought: str
    """The step's own thought."""
    thoughts: list[ThoughtView]
    """Annotated thoughts, newest first."""
    actions: list[str]
    """Canonical JSON of each action of the reply, in order."""
    frames: list[str]
    """sha256 of the screens between the actions that were tried."""
    error: str | None
    raw_text: str
    actor: str
    policy_version: str
    starts_s: float
    """Seconds from the start of the trajectory to the start of this step."""
    elements: list[tuple[str, str, tuple[float, float, float, float]]]
    """Name, kind and box (left, top, right, bottom) of the screen's elements."""
    correction: str | None
    """The newest valid correction, as canonical JSON."""
    correction_thought: str | None


class VerdictView(_Viewed):
    """The verdict of one gate."""

    gate: str
    gate_version: str
    passed: bool
    score: float | None
    reason: str
    error_step: int | None


class ReviewView(_Viewed):
    """One decision of a reviewer."""

    review_id: str
    revision: int
    person: str
    decision: str
    step: int | None
    action: str | None
    thought: str | None
    note: str
    holds: bool
    """Whether the decision is in force, since no later decision undid it."""
    at: str
    state: str | None = None
    """State of the newest valid correction of a step: `verified`, `refuted` or `unverified`; null otherwise."""
    tried_by: str | None = None
    """The trajectory that tried the correction in a sandbox, if any."""
    replaces: bool | None = None
    """Whether the correction replaced the recorded step; a step of an accepted trajectory stays until a correction is
    verified."""


class DeskItem(_Viewed):
    """A trajectory for review."""

    trajectory_id: str
    revision: int
    """Number of decisions, which a new decision must state."""
    iteration: int
    task_id: str
    task: str
    seed: int
    policy: str
    policy_version: str
    instruction: str
    reward: float | None
    success: bool | None
    termination: str
    failure: str
    decision: str
    """Reason for the trajectory's route; empty without a filter run."""
    route: str
    suite: str | None
    """Suite of the evaluation that kept the trajectory; None for a collected trajectory."""
    error_step: int | None
    steps: list[StepView]
    verdicts: list[VerdictView]
    reviews: list[ReviewView]


def item_of(lake: Lake, name: str, evaluations: bool = False) -> DeskItem:
    """Reads a trajectory with its verdicts and reviews.

    Args:
        lake: the lake.
        name: the trajectory's id.
        evaluations: whether the trajectory may be of an evaluation, which takes no reviews.

    Raises:
        UsageError: there is no such trajectory.
    """
    trajectory = episode_of(lake, name) if evaluations else trajectory_of(lake, name)
    name = trajectory.trajectory_id
    reviews = reviews_of(lake, name)
    where = {"iteration": trajectory.iteration, "trajectory_id": name}
    verdicts = sorted(lake.rows(Verdict, where), key=lambda one: one.created_at)
    noted = lake.rows(Annotation, {**where, "kind": "thought"})
    noted = sorted(noted, key=lambda one: (one.created_at, one.annotation_id), reverse=True)
    decision = next((one for one in reversed(verdicts) if one.gate == DECISION), None)
    failure = f"{trajectory.failure_boundary}: {trajectory.failure_reason}" if trajectory.failure_boundary else ""
    shown = ("trajectory_id", "iteration", "task_id", "seed", "policy", "policy_version", "instruction", "reward")
    return DeskItem(
        **{field: getattr(trajectory, field) for field in (*shown, "success", "termination")},
        revision=len(reviews),
        task=short_names([trajectory.task_id])[trajectory.task_id],
        failure=failure,
        decision=decision.reason if decision else "",
        route=decision.route if decision else "",
        suite=trajectory.suite if isinstance(trajectory, EvaluationTrajectory) else None,
        error_step=decision.error_step if decision else None,
        steps=_steps(steps_of(lake, trajectory), standing(reviews), noted),
        verdicts=[VerdictView.model_validate(one) for one in verdicts if _holds(one, decision)],
        reviews=review_views(reviews, corrections_of(lake, reviews)),
    )


def corrections_of(lake: Lake, reviews: Sequence[Review]) -> dict[str, dict[str, Any]]:
    """Returns the results of corrections among a trajectory's decisions, by review, as fields of `ReviewView`."""
    names = {one.trajectory_id for one in standing(reviews) if one.decision == "correct"}
    rows = [row for name in names for row in ask(lake, "corrections_of", trajectory_id=name).to_pylist()]
    return {row.pop("review_id"): row for row in rows}


def review_views(
    reviews: Sequence[Review], corrections: Mapping[str, Mapping[str, Any]] | None = None
) -> list[ReviewView]:
    """Makes the views of decisions, oldest first, with the results of corrections (`corrections_of`) if given."""
    held, became = {one.review_id for one in standing(reviews)}, corrections or {}
    shown = ("review_id", "revision", "person", "decision", "step", "action", "thought", "note")
    return [
        ReviewView(
            **{field: getattr(one, field) for field in shown},
            holds=one.review_id in held,
            at=one.created_at.strftime("%Y-%m-%d %H:%M"),
            **became.get(one.review_id, {}),
        )
        for one in reviews
    ]


def _holds(verdict: Verdict, decision: Verdict | None) -> bool:
    """Returns whether a verdict is in force: it is a judge's, a reviewer's, or of the filter run that decided. Earlier
    verdicts of gates that were removed or had other options have no effect. The decision is shown apart from them."""
    if verdict.gate == DECISION:
        return False
    return decision is None or verdict.gate in (JUDGE, PERSON) or verdict.created_at >= decision.created_at


def _steps(steps: Sequence[RecordedStep], reviews: Sequence[Review], noted: Sequence[Annotation]) -> list[StepView]:
    corrected = {one.step: one for one in reviews if one.decision == "correct"}
    shown: list[StepView] = []
    starts = 0.0
    for step in steps:
        correction = corrected.get(step.step)
        fields: dict[str, Any] = {
            field: getattr(step, field)
            for field in (
                *("step", "screenshot", "next_screenshot", "frames", "thought", "actions", "raw_text", "actor"),
            )
        }
        one = StepView(
            **fields,
            thoughts=[ThoughtView.model_validate(one) for one in noted if one.step == step.step],
            policy_version=step.policy_version,
            width=step.screen_width,
            height=step.screen_height,
            error=step.action_error and legible(step.action_error),
            starts_s=round(starts, 3),
            elements=[(element.name, element.kind, element.box) for element in elements_of(step.elements)],
            correction=correction.action if correction else None,
            correction_thought=correction.thought if correction else None,
        )
        shown.append(one)
        starts += (step.observe_ms + step.think_ms + step.act_ms) / 1000
    return shown
