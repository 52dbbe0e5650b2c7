"""A quality result: what one expectation observed in one table of one iteration."""

from schemas.table import Flag, Float64, Int32, Int64, Row, Table, Text, one_of, unique


class QualityResult(Row):
    """One expectation's outcome. `error` is set when the check itself broke: a gate error, not bad data."""

    iteration: Int32
    table: Text
    expectation: Text
    severity: Text
    success: Flag
    observed: Text
    unexpected: Int64
    """How many values broke the expectation."""
    examples: Text
    """Canonical JSON: keys of some of the rows that broke it, with their trajectories."""
    error: Text | None
    because: Text
    value: Float64 | None = None
    """Of an expectation of rows, the share of them that broke it, in [0, 1]; of a drift, its measure."""


TABLE = Table(
    name="quality",
    row=QualityResult,
    key=("iteration", "table", "expectation"),
    partition_by=("iteration",),
    added={"value": "NULL::DOUBLE"},
    expectations=(
        unique(("iteration", "table", "expectation")),
        one_of("severity", ("critical", "warning"), because="the gate knows these"),
    ),
)
