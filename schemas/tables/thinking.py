"""The result of asking a model for the thought of a step: kept or turned away, why, and its cost.

A kept thought itself is an annotation; a request without result is not repeated.
"""

from schemas.table import Flag, Float32, Instant, Int32, Row, Table, Text, between, not_null, unique


class Thinking(Row):
    """One thinker on one step."""

    trajectory_id: Text
    step: Int32
    author: Text
    """`actre` where the model was shown the action, `bootstrap` where it was not, or the author that a thinker of yours
    names."""
    version: Text
    """Policy version or model that was asked."""
    iteration: Int32
    tries: Int32
    """Number of requests."""
    kept: Flag
    reason: Text
    """Why the last thought was turned away; empty if it was kept."""
    tokens: Int32
    """Tokens of all tries, where they are known."""
    seconds: Float32
    """This step's share of the time that its batches took."""
    created_at: Instant


TABLE = Table(
    name="thinking",
    row=Thinking,
    key=("trajectory_id", "step", "author", "version"),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id", "step", "author", "version")),
        *not_null(
            "author", "version", "reason", because="a kept rate belongs to an author, and a refusal has a reason"
        ),
        between("tries", 1, None, because="who was never asked has no row"),
        between("seconds", 0.0, None, because="time does not run backwards"),
    ),
)
