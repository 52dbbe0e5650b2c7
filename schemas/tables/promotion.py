"""Every decision on a challenger with its numbers, and every rollback with its reason."""

from typing import Literal, get_args

from schemas.table import Float64, Instant, Int32, Row, Table, Text, not_null, one_of, unique

Outcome = Literal["promote", "hold", "reject"]
"""Result for a challenger: promoted to champion, undecided (the champion stays), or rejected."""


class Promotion(Row):
    """One decision about the champion."""

    event: Text
    """`challenge:VERSION` or `rollback:NUMBER`: a restart writes the same key."""
    decision: Literal["promote", "hold", "reject", "rollback"]
    policy_version: Text
    """The challenger; of a rollback the policy that is champion again."""
    against: Text
    """The champion of that moment; of a rollback the one that was replaced."""
    champion: Text
    """The champion afterwards."""
    pairs: Int32
    """Trajectories of the same tasks and seeds that both finished."""
    wins: Int32
    """Pairs that only the challenger won."""
    losses: Int32
    """Pairs that only the champion won."""
    difference: Float64 | None
    """Mean over tasks of challenger minus champion, in [-1, 1]."""
    low: Float64 | None
    high: Float64 | None
    """95 % interval of the difference."""
    llr: Float64 | None
    """Log likelihood ratio of the test where it stopped (`curation/promotion.py`)."""
    rule: Text
    """Canonical JSON of the test: its two hypotheses, alpha, beta."""
    reason: Text
    created_at: Instant


TABLE = Table(
    name="promotions",
    row=Promotion,
    key=("event",),
    expectations=(
        unique(("event",)),
        *not_null("reason", because="who takes over at three in the morning reads why"),
        one_of("decision", (*get_args(Outcome), "rollback"), because="these change or keep the champion"),
    ),
)
