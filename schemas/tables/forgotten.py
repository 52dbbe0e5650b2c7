"""A forgotten trajectory: the record that keeps it from being imported again and answers later questions."""

from schemas.table import Flag, Instant, Row, Table, Text, TextList, not_null, unique


class Forgotten(Row):
    """One trajectory that must not be anywhere in the lake."""

    trajectory_id: Text
    reason: Text
    policies: TextList
    """Policies whose training read it: they have learned from it still."""
    screenshots: TextList
    """sha256 of the pictures that no other trajectory showed when it was forgotten."""
    done: Flag
    """Whether it is gone from every file; if not, the same command resumes."""
    created_at: Instant


TABLE = Table(
    name="forgotten",
    row=Forgotten,
    key=("trajectory_id",),
    expectations=(
        unique(("trajectory_id",)),
        *not_null("reason", because="later questions about it get the reason"),
    ),
)
