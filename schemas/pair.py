"""A pair: a preferred and a rejected action for the same context (Agent DPO, arXiv 2501.12326)."""

from schemas.table import Flag, Int32, Row, Table, Text, not_null, unique


class Pair(Row):
    """One preference; both actions follow the same screenshot and history."""

    pair_id: Text
    trajectory_id: Text
    step: Int32
    iteration: Int32
    kind: Text
    chosen: Text
    rejected: Text
    verified: Flag


TABLE = Table(
    name="pairs",
    row=Pair,
    key=("pair_id",),
    partition_by=("iteration",),
    expectations=(
        unique(("pair_id",)),
        *not_null("chosen", "rejected", because="a preference needs both sides"),
    ),
)
