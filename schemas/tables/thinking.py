"""The result of asking a model for the thought of a step: kept or turned away, why, and its cost.

A kept thought itself is an annotation; a request without result is not repeated.
"""

from schemas.table import Flag, Float32, Instant, Int32, Row, Table, Text, between, not_null, unique


class Thinking(Row):
    """The requests of one thinker for the thought of one step."""

    trajectory_id: Text
    step: Int32
    author: Text
    """`actre` if the model saw the action, `bootstrap` if it did not, or the author that your own thinker names."""
    version: Text
    """Policy version or model that received the requests."""
    iteration: Int32
    tries: Int32
    """Number of requests."""
    kept: Flag
    reason: Text
    """Reason for rejecting the last thought; empty if it was kept."""
    tokens: Int32
    """Tokens of all tries, as far as they are known."""
    seconds: Float32
    """This step's share of the duration of its batches."""
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
