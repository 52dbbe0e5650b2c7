"""Show the changes of `flywheel refilter`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from apps.calling import call
from apps.lakes import open_lake
from schemas.config import Config
from tasks.running.console import out

if TYPE_CHECKING:
    from tasks.refilter import Changes


def refilter(config: Config, iterations: tuple[int, int] | None) -> "Changes":
    """Runs the configured gates over stored trajectories; returns the changes."""
    open_lake(config)
    return call("flows.refilter.refilter", config, iterations)


def as_json(found: "Changes") -> dict[str, Any]:
    """The changes as JSON."""
    names = {"was": "from", "now": "to"}
    flips = [{names.get(key, key): value for key, value in asdict(one).items()} for one in found.flips]
    return {**asdict(found), "flips": flips}


def show_changes(found: "Changes") -> None:
    """Prints the changes."""
    console, gates = out(), found.gates
    console.print(f"{found.changed} of {found.trajectories} trajectories go elsewhere")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("gate", "turned away before", "now"):
        table.add_column(name, justify="left" if name == "gate" else "right")
    for gate in sorted({*gates.before, *gates.after}):
        table.add_row(gate, *(str(counts.get(gate, 0)) for counts in (gates.before, gates.after)))
    console.print(table)
    for flip in found.flips:
        names = ", ".join(flip.examples)
        console.print(f"{flip.n} from {flip.was} to {flip.now}, such as {names}: {flip.reason}", soft_wrap=True)
