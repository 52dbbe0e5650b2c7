"""What `flywheel refilter` shows."""

from typing import Any

from rich.table import Table

from apps.calling import call
from apps.lakes import open_lake
from schemas.config import Config
from tasks.running.console import out


def refilter(config: Config, iterations: tuple[int, int] | None) -> dict[str, Any]:
    """Runs the configured gates over stored trajectories; returns what changed."""
    open_lake(config)
    return call("flows.refilter.refilter", config, iterations)


def show_changes(found: dict[str, Any]) -> None:
    """The same for people."""
    console, gates = out(), found["gates"]
    console.print(f"{found['changed']} of {found['trajectories']} trajectories go elsewhere")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("gate", "turned away before", "now"):
        table.add_column(name, justify="left" if name == "gate" else "right")
    for gate in sorted({*gates["before"], *gates["after"]}):
        table.add_row(gate, *(str(gates[when].get(gate, 0)) for when in ("before", "after")))
    console.print(table)
    for flip in found["flips"]:
        names = ", ".join(flip["examples"])
        why = flip["reason"]
        console.print(f"{flip['n']} from {flip['from']} to {flip['to']}, such as {names}: {why}", soft_wrap=True)
