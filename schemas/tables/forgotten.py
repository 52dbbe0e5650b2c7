"""A trajectory that was forgotten: what is left of it, so that nothing brings it back and nobody asks in vain."""

from schemas.table import Flag, Instant, Row, Table, Text, TextList, not_null, unique


class Forgotten(Row):
    """One trajectory that is to rest nowhere in the lake."""

    trajectory_id: Text
    reason: Text
    policies: TextList
    """Those whose training read it: they have learnt from it still."""
    screenshots: TextList
    """sha256 of the pictures that no other trajectory showed when it was forgotten."""
    done: Flag
    """Whether it is gone from every file; the same command goes on where it is not."""
    created_at: Instant


TABLE = Table(
    name="forgotten",
    row=Forgotten,
    key=("trajectory_id",),
    expectations=(
        unique(("trajectory_id",)),
        *not_null("reason", because="who asks for it later reads why it is not there"),
    ),
)
