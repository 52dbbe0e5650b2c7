"""A review: one decision of one person on one trajectory or one step of it. Rows are only ever added; an undo is a row.

`revision` counts the decisions on a trajectory. It is part of the key, so of two people who decided on the same state
only the first has written anything, in whatever process they were; the second gets the first one's decision.
"""

import hashlib
from typing import Literal, get_args

from schemas.table import Float32, Instant, Int32, Row, Table, Text, between, not_null, one_of, unique

Decision = Literal["accept", "reject", "correct", "override", "error_step", "undo", "note"]
DECISIONS: tuple[str, ...] = get_args(Decision)


class Review(Row):
    """One decision of one person about a trajectory or a step."""

    review_id: Text
    trajectory_id: Text
    revision: Int32
    """Number of earlier decisions on this trajectory: the state that the person saw."""
    iteration: Int32
    step: Int32 | None
    """Number of the step; null for the whole trajectory."""
    person: Text
    decision: Decision
    """`accept`, `reject`: of the trajectory, or, with a step, of a policy's proposal in a live session. `correct`:
    another reply for a recorded step. `override`: in a live session, the person's reply was performed instead of the
    policy's. `error_step`: the trajectory went wrong at this step, so it is rejected. `note`: a remark."""
    action: Text | None
    """Canonical JSON of the person's own action; null without one."""
    thought: Text | None
    """The person's thought."""
    original_action: Text | None
    """The replaced action: recorded, or proposed by a policy."""
    original_thought: Text | None
    note: Text
    seconds: Float32
    """Seconds that the person looked at the item before the decision."""
    undoes: Text | None
    """For an undo, the review that it cancels."""
    created_at: Instant


def review_id(trajectory_id: str, revision: int) -> str:
    """Builds a review's identity."""
    return hashlib.sha256(f"review|{trajectory_id}|{revision}".encode()).hexdigest()[:24]


TABLE = Table(
    name="reviews",
    row=Review,
    key=("trajectory_id", "revision"),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id", "revision")),
        *not_null("review_id", "person", because="every decision needs its id and its person"),
        one_of("decision", DECISIONS, because="only these decisions have a defined effect"),
        between("step", 0, 1000, because="the column is the number of a step"),
        between("seconds", 0.0, None, because="a duration is not negative"),
    ),
)
