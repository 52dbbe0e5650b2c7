"""`flywheel tasks`: the tasks that there are, and making new ones."""

from typing import Annotated, Any

import typer
from rich.table import Table

from apps.options import AsJson, ConfigFile, Overrides, iteration_range, print_json, resolve, say
from schemas.config import Config
from schemas.text import counted

Range = Annotated[
    str | None, typer.Option("--iterations", metavar="A:B", help="Whose failures count, B left out; all if not given.")
]


def list_tasks(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the config's tasks and the made ones, with where each comes from."""
    from tasks.shared.paths import lake_if_any
    from tasks.synthesize.command import listed

    resolved = resolve(config, overrides)
    rows = listed(resolved, lake_if_any(resolved))
    if as_json:
        print_json({"tasks": rows})
    else:
        _show_tasks(rows)


def synthesize(
    overrides: Overrides = None, config: ConfigFile = None, iterations: Range = None, as_json: AsJson = False
) -> None:
    """Make new tasks from those that there are; accepted ones are rolled out from the next iteration on."""
    found = _made(resolve(config, overrides), iteration_range(iterations))
    if as_json:
        print_json(found)
    else:
        _show_made(found)


def retire(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A made task's id or template.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    why: Annotated[str, typer.Option("--because", help="Kept with it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take a made task out: it is rolled out no more, and not made again."""
    from apps.lakes import open_lake
    from tasks.synthesize.command import retire as take_out

    name = take_out(open_lake(resolve(config, overrides)), task, why)
    if as_json:
        print_json({"task": name, "status": "retired"})
    else:
        say(f"{name} is retired")


def _made(config: Config, iterations: tuple[int, int] | None) -> dict[str, Any]:
    from apps.calling import call
    from apps.environment import make_prefect_home

    make_prefect_home()  # before Prefect is imported, which these do
    from tasks.preflight.preflight import require
    from tasks.shared.suite import require_makers

    require_makers(config)
    require(config)
    return call("flows.synthesize.synthesize", config, iterations)


def _show_tasks(rows: list[dict[str, Any]]) -> None:
    from tasks.running.console import out

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", "status", "split", "instruction", "from"):
        table.add_column(name)
    for row in rows:
        cells = (row["task"], row["status"], row["split"], row["instruction"], row["lineage"] or "")
        table.add_row(*cells)
    out().print(table)


def _show_made(found: dict[str, Any]) -> None:
    from tasks.running.console import out

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("maker", "proposed", "accepted", "turned away"):
        table.add_column(name, justify="left" if name in ("maker", "turned away") else "right")
    for name, one in found["makers"].items():
        why = ", ".join(f"{count} {reason}" for reason, count in one["rejected"].items())
        table.add_row(name, str(one["proposed"]), str(one["accepted"]), why)
    console = out()
    console.print(table)
    console.print(f"\niteration {found['iteration']} has {counted(found['accepted'], 'new task')}: {found['say']}")


list_tasks.__name__ = "list"
VERBS = (list_tasks, synthesize, retire)
