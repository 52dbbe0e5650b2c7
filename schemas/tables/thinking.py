"""Define the table `thinking`: requests to models for thoughts of steps, with their results and costs.

A kept thought is stored as an annotation. A step whose thoughts were rejected is not asked about again.
"""

from schemas.table import Flag, Float32, Instant, Int32, Row, Table, Text, between, not_null, unique


class Thinking(Row):
    """The requests of one thinker for the thought of one step."""

    trajectory_id: Text
    step: Int32
    author: Text
    """`actre` if the model saw the action, `bootstrap` if it did not; or the author name of your own thinker."""
    version: Text
    """Policy version or model that received the requests."""
    iteration: Int32
    tries: Int32
    """Number of requests."""
    kept: Flag
    reason: Text
    """Reason for rejecting the last thought; empty if a thought was kept."""
    tokens: Int32
    """Tokens of all requests, as far as they are known."""
    seconds: Float32
    """Share of this step in the duration of its batches."""
    created_at: Instant


TABLE = Table(
    name="thinking",
    row=Thinking,
    key=("trajectory_id", "step", "author", "version"),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id", "step", "author", "version")),
        *not_null(
            "author",
            "version",
            "reason",
            because="rates are grouped by author and version, and a rejection needs a reason",
        ),
        between("tries", 1, None, because="a row needs at least one request"),
        between("seconds", 0.0, None, because="a duration is not negative"),
    ),
)
