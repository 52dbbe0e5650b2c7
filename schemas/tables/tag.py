"""Define the table `tags`: tags and notes of people on trajectories, policies and runs. Rows are only added."""

from schemas.table import Instant, Row, Table, Text, not_null, unique


class Tag(Row):
    """One tag or note. Exactly one of the columns `trajectory_id`, `policy_version` and `run_id` names its subject."""

    tag_id: Text
    trajectory_id: Text | None
    """A trajectory, collected or of an evaluation."""
    policy_version: Text | None
    run_id: Text | None
    tag: Text
    """The tag, in small letters; empty for a note alone."""
    note: Text
    person: Text
    removes: Text | None
    """For a removal: the `tag_id` of the removed row."""
    created_at: Instant


TABLE = Table(
    name="tags",
    row=Tag,
    key=("tag_id",),
    expectations=(
        unique(("tag_id",)),
        *not_null("person", because="every tag needs its person"),
    ),
)
