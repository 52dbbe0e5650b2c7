"""A forgotten trajectory: the record that keeps it from being imported again and answers later questions."""

from schemas.table import Flag, Instant, Row, Table, Text, TextList, not_null, unique


class Forgotten(Row):
    """One trajectory that was removed from the lake and must not return."""

    trajectory_id: Text
    reason: Text
    policies: TextList
    """Policies whose training read the trajectory; they still contain what they learned from it."""
    screenshots: TextList
    """sha256 of the pictures that no other trajectory had when this one was forgotten."""
    done: Flag
    """Whether the trajectory is removed from every file; if false, the same command resumes."""
    created_at: Instant


TABLE = Table(
    name="forgotten",
    row=Forgotten,
    key=("trajectory_id",),
    expectations=(
        unique(("trajectory_id",)),
        *not_null("reason", because="a removal needs a reason"),
    ),
)
