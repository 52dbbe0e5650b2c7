"""Define the table `forgotten`: trajectories that were removed and must not be stored again."""

from schemas.table import Flag, Instant, Row, Table, Text, TextList, not_null, unique


class Forgotten(Row):
    """One trajectory that was removed from the lake and must not be stored again."""

    trajectory_id: Text
    reason: Text
    policies: TextList
    """Policies whose training read the trajectory. Their weights still depend on it."""
    screenshots: TextList
    """sha256 of the pictures that only this trajectory had."""
    done: Flag
    """Whether the trajectory is removed from every file. If false, the same command continues the removal."""
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
