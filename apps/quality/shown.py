"""What `flywheel quality` shows people."""

from typing import Any

from rich.markup import escape
from rich.table import Table

from tasks.shared.console import out

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
            *(f"[red]{counts[n]}[/red]" if n == "critical" and counts[n] else str(counts[n]) for n in names),
        )
    console.print(table)
    for row in found["results"]:
        if not row["success"]:
            console.print(_failure(row), soft_wrap=True)


def _failure(row: dict[str, Any]) -> str:
    colour = "yellow" if row["severity"] == "warning" or row["overridden"] else "red"
    seen = f"the check itself broke: {row['error']}" if row["error"] else row["observed"]
    text = f"[{colour}]{row['severity']}[/{colour}]  {row['label']}  {row['table']}: {escape(row['expectation'])}"
    text += f"\n    {escape(seen)}; {escape(row['because'])}"
    if row["trajectories"]:
        text += f"\n    trajectories {escape(', '.join(row['trajectories']))}"
    elif row["examples"]:
        text += f"\n    rows {escape(str(row['examples']))}"
    if row["overridden"]:
        text += f"\n    overridden by {escape(row['override_by'])}: {escape(row['override_reason'])}"
    return text
