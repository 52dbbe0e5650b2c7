"""What `flywheel quality` shows people."""

from typing import Any

from rich.table import Table
from rich.text import Text

from schemas.text import harmless
from tasks.running.console import out

NEWEST = 20
"""Iterations that fit a screen."""


def show_quality(found: dict[str, Any]) -> None:
    """The newest iterations, then what failed."""
    console = out()
    if not found["iterations"]:
        console.print("No gate has run yet.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ("checks", "held", "critical", "overridden", "warnings", "broken", "rows")
    for name in ("", *names):
        table.add_column(name, justify="right" if name else "left")
    for row in found["iterations"][:NEWEST]:
        counts = {**row, "rows": row["unexpected"]}
        table.add_row(
            row["label"],
            *(Text(str(counts[n]), "red" if n == "critical" and counts[n] else "") for n in names),
        )
    console.print(table)
    for row in found["results"]:
        if not row["success"]:
            console.print(_failure(row), soft_wrap=True)


def _failure(row: dict[str, Any]) -> Text:
    colour = "yellow" if row["severity"] == "warning" or row["overridden"] else "red"
    seen = f"the check itself broke: {row['error']}" if row["error"] else row["observed"]
    text = f"  {row['label']}  {row['table']}: {row['expectation']}"
    text += f"\n    {seen}; {row['because']}"
    if row["trajectories"]:
        text += f"\n    trajectories {', '.join(row['trajectories'])}"
    elif row["examples"]:
        text += f"\n    rows {row['examples']!s}"
    if row["overridden"]:
        text += f"\n    overridden by {row['override_by']}: {row['override_reason']}"
    return Text.assemble((row["severity"], colour), harmless(text))
