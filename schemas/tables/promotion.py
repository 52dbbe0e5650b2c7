"""Every decision on a challenger with its numbers, and every rollback with its reason."""

from typing import Literal, get_args

from schemas.table import Float64, Instant, Int32, Row, Table, Text, not_null, one_of, unique

Outcome = Literal["promote", "hold", "reject"]
"""Result for a challenger: promoted to champion, undecided (the champion stays), or rejected."""


class Promotion(Row):
    """One decision about the champion, a promotion test or a rollback."""

    event: Text
    """`challenge:VERSION` or `rollback:NUMBER`; a restart writes the same key."""
    decision: Literal["promote", "hold", "reject", "rollback"]
    policy_version: Text
    """The challenger; in a rollback, the policy that becomes champion again."""
    against: Text
    """The champion before the decision; in a rollback, the policy that is replaced."""
    champion: Text
    """The champion after the decision."""
    pairs: Int32
    """Pairs of finished trajectories of both policies on the same task and seed."""
    wins: Int32
    """Pairs that only the challenger won."""
    losses: Int32
    """Pairs that only the champion won."""
    difference: Float64 | None
    """Success of the challenger minus the champion, as the mean over tasks, in [-1, 1]."""
    low: Float64 | None
    high: Float64 | None
    """Upper end of the difference's 95 % interval."""
    llr: Float64 | None
    """Log likelihood ratio at which the test stopped (`curation/promotion.py`)."""
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
        *not_null("reason", because="operators need the reason of every decision"),
        one_of("decision", (*get_args(Outcome), "rollback"), because="a decision is one of these"),
    ),
)
