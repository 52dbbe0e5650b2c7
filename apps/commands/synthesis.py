"""Implement `flywheel tasks`: list the tasks, and make new ones."""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.options import (
    AsJson,
    ConfigFile,
    Overrides,
    iteration_range,
    open_lake,
    print_note,
    print_result,
    resolve,
)
from common.text import counted

if TYPE_CHECKING:
    from schemas.config import Config
    from tasks.synthesize import Listed, Made

Range = Annotated[
    str | None, typer.Option("--iterations", metavar="A:B", help="Failures of iterations A to B - 1; all if not given.")
]


def list_tasks(
    overrides: Overrides = None,
    config: ConfigFile = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also list the tasks of all environments that the config does not use.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the config's tasks and the made ones, each with its origin."""
    from environments.catalog import playable
    from tasks.shared.paths import lake_if_any
    from tasks.synthesize import Listed, listed

    resolved = resolve(config, overrides)
    rows, missing = listed(resolved, lake_if_any(resolved)), dict[str, str]()
    if every:
        tasks, missing = playable(resolved)
        known = {one.task.task_id for one in rows}
        rows += [Listed(one, "available") for one in tasks if one.task_id not in known]
    shown = {"tasks": [_as_row(one) for one in rows], **({"missing": missing} if every else {})}
    print_result(as_json, shown, lambda: _show_tasks(rows))
    for name, reason in missing.items():
        print_note(f"no tasks of {name}: {reason}")


def synthesize(
    overrides: Overrides = None, config: ConfigFile = None, iterations: Range = None, as_json: AsJson = False
) -> None:
    """Make new tasks from the existing ones; accepted ones are rolled out from the next iteration on."""
    iteration, found = _made(resolve(config, overrides), iteration_range(iterations))
    print_result(as_json, {"iteration": iteration, **found.stored}, lambda: _show_made(iteration, found))


def retire(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Id or template of a made task.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    why: Annotated[str, typer.Option("--because", help="Reason, which is stored with the task.")] = "",
    as_json: AsJson = False,
) -> None:
    """Remove a made task: it is no longer rolled out, and not made again."""
    from tasks.synthesize import retire as take_out

    name = take_out(open_lake(resolve(config, overrides)), task, why)
    print_result(as_json, {"task": name, "status": "retired"}, f"{name} is retired")


def _made(config: "Config", iterations: tuple[int, int] | None) -> "tuple[int, Made]":
    from apps.calling import call
    from tasks.preflight.preflight import require
    from tasks.shared.suite import require_makers

    require_makers(config)
    require(config)
    return call("flows.data.synthesize", config, iterations)


def _as_row(one: "Listed") -> dict[str, object]:
    """Converts a task to JSON."""
    task, proposal = one.task, one.proposal
    row = {name: getattr(task, name) for name in ("split", "instruction", "verifier", "lineage")}
    made = {name: getattr(proposal, name) for name in ("solved", "tries", "detail") if proposal}
    return {"task": task.task_id, "status": one.status, **row, **made}


def _show_tasks(rows: "list[Listed]") -> None:
    from tasks.running.console import make_table, out

    table = make_table("<task", "<status", "<split", "<instruction", "<from")
    for row in rows:
        task = row.task
        table.add_row(task.task_id, row.status, task.split, task.instruction, task.lineage or "")
    out().print(table)


def _show_made(iteration: int, found: "Made") -> None:
    from tasks.running.console import make_table, out

    table = make_table("<maker", "proposed", "accepted", "<rejected")
    for name, one in found.makers.items():
        table.add_row(name, str(one.proposed), str(one.accepted), one.why)
    console = out()
    console.print(table)
    console.print(f"\niteration {iteration} has {counted(found.accepted, 'new task')}: {found}")


list_tasks.__name__ = "list"
VERBS = (list_tasks, synthesize, retire)
