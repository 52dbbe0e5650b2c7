"""Define the tables `quality` and `quality_overrides`: results of expectations, and accepted failures."""

from schemas.table import (
    Flag,
    Float64,
    Instant,
    Int32,
    Int64,
    Row,
    Table,
    Text,
    between,
    matches,
    not_null,
    one_of,
    unique,
)


class QualityResult(Row):
    """Result of one expectation for one table and iteration. `error` is set if the check itself failed."""

    iteration: Int32
    table: Text
    expectation: Text
    severity: Text
    success: Flag
    observed: Text
    unexpected: Int64
    """Number of values that broke the expectation."""
    examples: Text
    """Canonical JSON: keys of some rows that broke the expectation, with their trajectories."""
    error: Text | None
    because: Text
    value: Float64 | None = None
    """Share of the rows that broke the expectation, in [0, 1]; for drift, the value of the measure."""


TABLE = Table(
    name="quality",
    row=QualityResult,
    key=("iteration", "table", "expectation"),
    partition_by=("iteration",),
    added={"value": "NULL::DOUBLE"},
    expectations=(
        unique(("iteration", "table", "expectation")),
        one_of("severity", ("critical", "warning"), because="the quality gate supports these severities"),
    ),
)


class QualityOverride(Row):
    """One critical failure that a reviewer accepted, and the reason.

    Rows are only added. An override covers the number of unexpected rows at its time. A different failure, or a failure
    with more unexpected rows, stops the iteration again.
    """

    iteration: Int32
    table: Text
    expectation: Text
    unexpected: Int64
    """Number of rows that broke the expectation."""
    broke: Flag
    """Whether the check itself failed."""
    reason: Text
    person: Text
    created_at: Instant

    def covers(self, result: QualityResult) -> bool:
        """Checks whether a failure is the overridden failure and has no more unexpected rows."""
        same = (self.iteration, self.table, self.expectation) == (result.iteration, result.table, result.expectation)
        return same and self.unexpected >= result.unexpected and (self.broke or result.error is None)


OVERRIDES = Table(
    name="quality_overrides",
    row=QualityOverride,
    key=("iteration", "table", "expectation", "created_at"),
    partition_by=("iteration",),
    expectations=(
        unique(("iteration", "table", "expectation", "created_at")),
        *not_null("reason", "person", because="an override needs a person and a reason"),
        matches("reason", r"\S", because="an override without a reason would switch the gate off"),
        between("unexpected", 0, None, because="a number of rows is not negative"),
    ),
)
