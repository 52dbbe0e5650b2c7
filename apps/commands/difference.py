"""Implement `flywheel diff`: print the changes between two data versions, and between the policies made from them."""

from flywheel.difference import COMPARED, Policies, VersionComparison
from tasks.running.console import make_table, out

SHOWN = 12
"""Maximum printed lines of a table; `--json` has all."""


def show_difference(compared: VersionComparison) -> None:
    """Prints the comparison, the largest changes first."""
    console, found = out(), compared.found
    for table, (before, after) in found.rows.items():
        if before != after:
            console.print(f"{table:<14} {before:>9,} {after:>9,}  {after - before:+,}")
    for word, tasks in compared.tasks.items():
        if tasks:
            more = f" and {len(tasks) - SHOWN} more" if len(tasks) > SHOWN else ""
            console.print(f"tasks {word}: {', '.join(tasks[:SHOWN])}{more}", markup=False)
    moved = [(name, one, one.shift) for name, one in compared.families.items() if one.shift]
    _table("family", [(name, _number(one.a.success), _number(one.b.success), f"{shift:+.3f}")
                      for name, one, shift in sorted(moved, key=lambda it: -abs(it[2]))[:SHOWN]])  # fmt: skip
    for flip in compared.flips[:SHOWN]:
        was, now = flip.was or "no route", flip.now or "no route"
        console.print(f"{flip.n:,} trajectories from {was} to {now}, {flip.examples[0]} for one")
    for judge, (before, after) in found.judges.items():
        if before != after:
            console.print(f"judge {judge}: {before:,} verdicts, then {after:,}", markup=False)
    if compared.policies:
        _show_policies(compared.policies)


def _show_policies(found: Policies) -> None:
    console = out()
    for name in COMPARED:
        before, after = found.both(name)
        if before != after:
            console.print(f"{name:<14} {before} -> {after}", markup=False)
    for key, (before, after) in found.config.items():
        console.print(f"{key}: {before} -> {after}", markup=False)
    if (at := found.success).n:
        console.print(f"success        {at.mean:+.3f} ({at.low:+.3f} to {at.high:+.3f}) over {at.n} pairs")


def _table(name: str, rows: list[tuple[str, str, str, str]]) -> None:
    if not rows:
        return
    table = make_table(f"<{name}", "success before", "after", "shift")
    for row in rows:
        table.add_row(*row)
    out().print(table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
