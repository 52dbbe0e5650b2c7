"""Define the table `readings`: elements that a screen reader found on screenshots. No picture is read twice."""

from schemas.table import Float32, Instant, Int32, Row, Table, Text, between, matches, not_null, unique


class ScreenReading(Row):
    """Elements that one version of a reader found on one screenshot."""

    sha256: Text
    """Hash of the screenshot."""
    reader: Text
    """Name and version of the reader. A new version reads the picture again."""
    iteration: Int32
    """Iteration in which the screenshot was read."""
    elements: Text
    """Canonical JSON list, as in `steps`: name, kind, box in [0,1]."""
    read_ms: Float32
    created_at: Instant


TABLE = Table(
    name="readings",
    row=ScreenReading,
    key=("sha256", "reader"),
    partition_by=("iteration",),
    expectations=(
        unique(("sha256", "reader")),
        *not_null("elements", because="a screen without elements has an empty list, not null"),
        matches("sha256", r"^[0-9a-f]{64}$", because="screenshots are found by their sha256"),
        between("read_ms", 0, None, because="a duration is not negative"),
    ),
)
