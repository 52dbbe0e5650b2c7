"""Define the table `reviews`: reviewers' decisions about trajectories and steps. Rows are only added; an undo is a row.

`revision` counts the decisions about a trajectory and is part of the key. If two reviewers decide about the same
revision, only the first decision is written. The second reviewer gets the first decision instead.
"""

import hashlib
from typing import Literal, get_args

from schemas.table import Float32, Instant, Int32, Row, Table, Text, between, not_null, one_of, unique
from schemas.tables.trajectory import Route

Decision = Literal["accept", "reject", "correct", "override", "error_step", "undo", "note"]
DECISIONS: tuple[str, ...] = get_args(Decision)


class Review(Row):
    """One decision of one reviewer about a trajectory or a step."""

    review_id: Text
    trajectory_id: Text
    revision: Int32
    """Number of earlier decisions about the trajectory that the reviewer saw."""
    iteration: Int32
    step: Int32 | None
    """Number of the step; null for the whole trajectory."""
    person: Text
    decision: Decision
    """`accept`, `reject`: a decision about the trajectory; with a step, about a policy's proposal in a live session.
    `correct`: another reply for a recorded step. `override`: in a live session, the reviewer's reply was performed
    instead of the policy's. `error_step`: the first wrong step, for which the trajectory is rejected. `note`: a remark.
    `undo`: an earlier decision is cancelled."""
    action: Text | None
    """Canonical JSON of the reviewer's action; null without an action."""
    thought: Text | None
    """Thought of the reviewer."""
    original_action: Text | None
    """Replaced action: the recorded action, or the policy's proposal."""
    original_thought: Text | None
    note: Text
    seconds: Float32
    """Seconds that the reviewer viewed the item before the decision."""
    undoes: Text | None
    """For an undo: the cancelled review."""
    created_at: Instant
    route: Route | None = None
    """Route of the trajectory's data according to the decision; null for the decision's own route: `sft` for `accept`,
    `ct` for `reject`."""
    batch: Text | None = None
    """Id of the operation that decided on many trajectories at once, by which it is undone; null for one decision."""


def review_id(trajectory_id: str, revision: int) -> str:
    """Returns the id of a review."""
    return hashlib.sha256(f"review|{trajectory_id}|{revision}".encode()).hexdigest()[:24]


TABLE = Table(
    name="reviews",
    row=Review,
    key=("trajectory_id", "revision"),
    partition_by=("iteration",),
    added={"route": "NULL::VARCHAR", "batch": "NULL::VARCHAR"},
    expectations=(
        unique(("trajectory_id", "revision")),
        *not_null("review_id", "person", because="every decision needs its id and its person"),
        one_of("decision", DECISIONS, because="only these decisions have a defined effect"),
        between("step", 0, 1000, because="the column is the number of a step"),
        between("seconds", 0.0, None, because="a duration is not negative"),
    ),
)
