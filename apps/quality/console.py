"""Print the results of `flywheel quality`."""

from rich.table import Table
from rich.text import Text

from apps.quality.gather import ExpectationResult, Quality
from common.text import harmless
from tasks.running.console import out

NEWEST = 20
"""Iterations that fit a screen."""


def print_quality(found: Quality) -> None:
    """Prints the newest iterations, then the failed expectations."""
    console = out()
    if not found.iterations:
        console.print("No gate has run yet.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "checks", "held", "critical", "overridden", "warnings", "broken", "rows"):
        table.add_column(name, justify="right" if name else "left")
    for row in found.iterations[:NEWEST]:
        critical = Text(str(row.critical), "red" if row.critical else "")
        counts = (row.overridden, row.warnings, row.broken, row.unexpected)
        table.add_row(row.label, str(row.checks), str(row.held), critical, *map(str, counts))
    console.print(table)
    for row in found.results:
        if not row.success:
            console.print(_failure(row), soft_wrap=True)


def _failure(row: ExpectationResult) -> Text:
    colour = "yellow" if row.severity == "warning" or row.overridden else "red"
    seen = f"the check itself broke: {row.error}" if row.error else row.observed
    text = f"  {row.label}  {row.table}: {row.expectation}"
    text += f"\n    {seen}; {row.because}"
    if row.trajectories:
        text += f"\n    trajectories {', '.join(row.trajectories)}"
    elif row.examples:
        text += f"\n    rows {row.examples!s}"
    if row.overridden:
        text += f"\n    overridden by {row.override_by}: {row.override_reason}"
    return Text.assemble((row.severity, colour), harmless(text))
