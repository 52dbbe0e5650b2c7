"""Turn each review into its rows: a verdict, an annotation or a preference.

A decision on the whole trajectory is a verdict of the gate `person`, which outranks every gate except `environment`
(`storage/queries/views/decisions.sql`). Another reply for a step is a correction (Agent DPO and reflection tuning,
UI-TARS, arXiv 2501.12326): an annotation to imitate, and a pair that prefers it to the recorded reply. The rows of a
review have the review's id, so an undo removes exactly them.
"""

from collections.abc import Iterable

from models.families.dialects import format_action, format_reply
from models.thoughts import templated_thought
from schemas.action import from_json
from schemas.tables.annotation import Annotation
from schemas.tables.pair import Pair
from schemas.tables.review import Review
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import PERSON, Verdict

_REASONS = {"accept": "accepted", "reject": "rejected", "error_step": "went wrong at step {step}"}
"""Reasons of decisions on the whole trajectory; they need no note."""


Effect = Verdict | Annotation | Pair


def standing(reviews: Iterable[Review]) -> list[Review]:
    """Return the effective reviews, oldest first, without undone reviews and undos."""
    rows = sorted(reviews, key=lambda one: one.revision)
    undone = {one.undoes for one in rows}
    return [one for one in rows if one.decision != "undo" and one.review_id not in undone]


def is_word(review: Review) -> bool:
    """Whether a review decides on the whole trajectory."""
    return review.decision == "error_step" or (review.decision in ("accept", "reject") and review.step is None)


def effects_of(review: Review, trajectory: Trajectory) -> list[Effect]:
    """Return the rows of an effective review."""
    verdict = _verdict(review) if is_word(review) else None
    return [row for row in (verdict, _annotation(review), _pair(review, trajectory)) if row is not None]


def version_of(review: Review) -> str:
    """Return the version of a review's verdict: the reviewer and the number of the decision."""
    return f"{review.person}#{review.revision}"


def _verdict(review: Review) -> Verdict:
    accepted = review.decision == "accept"
    done = f"sent to {review.route}" if review.route else _REASONS[review.decision].format(step=review.step)
    reason = f"{done} by {review.person}"
    return Verdict(
        trajectory_id=review.trajectory_id,
        gate=PERSON,
        gate_version=version_of(review),
        iteration=review.iteration,
        passed=accepted,
        score=None,
        error_step=review.step,
        reason=f"{reason}: {review.note}" if review.note else reason,
        route=review.route or ("sft" if accepted else "ct"),
        valid_steps=None if accepted else review.step,
        created_at=review.created_at,
    )


def _annotation(review: Review) -> Annotation | None:
    """Return a correction of a recorded step, or a reviewer's thought for it."""
    noted = review.decision == "note" and bool(review.thought)
    if review.step is None or not (noted or review.decision == "correct"):
        return None
    return Annotation(
        annotation_id=review.review_id,
        trajectory_id=review.trajectory_id,
        step=review.step,
        iteration=review.iteration,
        kind="thought" if noted else "correction",
        author=review.person,
        thought=_thought(review.thought, review.action or ""),
        action=review.original_action if noted else review.action,
        before=None,
        after=None,
        created_at=review.created_at,
    )


def _pair(review: Review, trajectory: Trajectory) -> Pair | None:
    """Prefer the reviewer's action to the replaced action; return None if both are equal."""
    if review.decision not in ("correct", "override") or review.step is None:
        return None
    if review.action is None or review.original_action in (None, review.action):
        return None
    return Pair(
        pair_id=review.review_id,
        trajectory_id=review.trajectory_id,
        step=review.step,
        iteration=review.iteration,
        task_id=trajectory.task_id,
        seed=trajectory.seed,
        kind="correction",
        chosen=_reply(review.thought, review.action),
        rejected=_reply(review.original_thought, review.original_action),
        rejected_trajectory_id=review.trajectory_id if review.decision == "correct" else None,
        verified=False,
    )


def _reply(thought: str | None, action: str) -> str:
    """Format a reply; both sides get a thought, templated if necessary, so that no preference is for having one."""
    return format_reply(_thought(thought, action), format_action(from_json(action)))


def _thought(written: str | None, action: str) -> str:
    """Return the written thought, or the action's template if it is blank."""
    return (written or "").strip() or templated_thought(from_json(action))
