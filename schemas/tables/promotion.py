"""Define the table `promotions`: decisions about challengers with their numbers, and rollbacks with their reasons."""

from typing import Literal, get_args

from schemas.table import Float64, Instant, Int32, Row, Table, Text, not_null, one_of, unique

Outcome = Literal["promote", "hold", "reject"]
"""Decision about a challenger: promoted to champion, held (the champion stays for now), or rejected."""


class Promotion(Row):
    """One decision about the champion: a test of a challenger, or a rollback."""

    event: Text
    """`challenge:VERSION` or `rollback:NUMBER`. A restarted process writes the same key."""
    decision: Literal["promote", "hold", "reject", "rollback"]
    policy_version: Text
    """The challenger. For a rollback: the policy that becomes champion again."""
    against: Text
    """The champion before the decision. For a rollback: the replaced policy."""
    champion: Text
    """The champion after the decision."""
    pairs: Int32
    """Number of pairs: finished trajectories of both policies for the same task and seed."""
    wins: Int32
    """Number of pairs in which only the challenger succeeded."""
    losses: Int32
    """Number of pairs in which only the champion succeeded."""
    difference: Float64 | None
    """Success rate of the challenger minus the success rate of the champion, as the mean over tasks, in [-1, 1]."""
    low: Float64 | None
    high: Float64 | None
    """Upper end of the difference's 95 % interval."""
    llr: Float64 | None
    """Log likelihood ratio at which the test stopped (`curation/promotion.py`)."""
    rule: Text
    """Canonical JSON of the test: the two hypotheses, alpha and beta."""
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
