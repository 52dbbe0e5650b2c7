"""An override: somebody let an iteration pass a critical expectation that its rows break, and wrote down why.

Rows are only ever added. An override covers as many unexpected rows as there were when it was written: what breaks
after it, or breaks more, blocks again.
"""

from schemas.table import Flag, Instant, Int32, Int64, Row, Table, Text, between, matches, not_null, unique
from schemas.tables.quality import QualityResult


class QualityOverride(Row):
    """One critical failure that somebody took on."""

    iteration: Int32
    table: Text
    expectation: Text
    unexpected: Int64
    """How many rows broke it."""
    broke: Flag
    """Whether it was the check itself that broke."""
    reason: Text
    person: Text
    created_at: Instant

    def covers(self, result: QualityResult) -> bool:
        """Whether this failure is the one that was taken on, and no worse."""
        same = (self.iteration, self.table, self.expectation) == (result.iteration, result.table, result.expectation)
        return same and self.unexpected >= result.unexpected and (self.broke or result.error is None)


TABLE = Table(
    name="quality_overrides",
    row=QualityOverride,
    key=("iteration", "table", "expectation", "created_at"),
    partition_by=("iteration",),
    expectations=(
        unique(("iteration", "table", "expectation", "created_at")),
        *not_null("reason", "person", because="what nobody stands for is not overridden"),
        matches("reason", r"\S", because="an override without a reason is a gate that is switched off"),
        between("unexpected", 0, None, because="a number of rows"),
    ),
)
