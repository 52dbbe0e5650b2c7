"""Implement `flywheel think`: thoughts of stored steps, and the results of requesting them."""

from typing import TYPE_CHECKING

from rich.table import Table

from apps.lakes import open_lake
from schemas.config import Config
from tasks.running.console import out

if TYPE_CHECKING:
    from tasks.think.think import ThoughtReport


def think_of_stored(config: Config, iterations: tuple[int, int] | None) -> "ThoughtReport":
    """Requests thoughts for stored steps; raises UsageError if no author is configured, or there are no steps."""
    from tasks.running.boundary import alone
    from tasks.think.think import think_again

    lake = open_lake(config)
    with alone(lake, "think"):
        return think_again(config, lake, iterations)


def show_thoughts(found: "ThoughtReport") -> None:
    """The report for people."""
    console = out()
    for what, by_name in (("thoughts", found.thoughts), ("patterns", found.patterns)):
        counts = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in by_name.items())
        console.print(f"{what}: {counts or 'none'}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("author", "step", "asked", "kept", ""):
        table.add_column(name, justify="left" if name == "author" else "right")
    for row in found.kept_by_step:
        table.add_row(row.author, str(row.step), str(row.asked), str(row.kept), f"{row.kept / row.asked:.0%}")
    if found.kept_by_step:
        console.print(table)
        cost = f"{found.tries:,} tries, {found.tokens:,} tokens, {found.seconds:,.1f} s"
        reasons = ", ".join(f"{reason} {n}" for reason, n in found.turned_away.items())
        console.print(f"{cost}; turned away: {reasons or 'none'}")
    for why, n in found.failed.items():
        console.print(f"no answer on {n:,} steps: {why}", markup=False)
    if found.unasked:
        console.print(f"{found.unasked:,} left unasked: raise think.most")
