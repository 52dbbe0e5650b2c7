"""Implement `flywheel curriculum explain`: show the weight of each task by iteration, and the reason."""

from difflib import get_close_matches
from typing import Any

from schemas.failure import UsageError
from schemas.tables.curriculum import CurriculumChoice
from storage.lake import Lake
from tasks.running.console import make_table, out

KINDS = ("explorer", "policy", "relay")


def explanation(lake: Lake, task: str) -> list[CurriculumChoice]:
    """Reads the choices for a task, oldest first; there is at least one.

    Raises:
        UsageError: the curriculum never had the task; the message names the nearest task and lists all.
    """
    rows = lake.rows(CurriculumChoice)
    known = sorted({row.task_id for row in rows})
    named = [name for name in known if task in (name, name.rpartition("/")[2])]
    if not named:
        short = [name.rpartition("/")[2] for name in known]
        near = get_close_matches(task, [*known, *short], n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"It holds: {', '.join(short) or 'nothing yet'}."
        raise UsageError(f"The curriculum of {lake.uri} holds no task `{task}`.", hint)
    if len(named) > 1:
        raise UsageError(f"Several environments have a task `{task}`.", f"Write {' or '.join(named)}.")
    return sorted((row for row in rows if row.task_id == named[0]), key=lambda row: row.iteration)


def explained(found: list[CurriculumChoice]) -> dict[str, Any]:
    """Converts the choices to JSON."""
    numbers = {"iteration", "pool", "weight", "successes", "failures", "reason"}
    return {
        "task": found[0].task_id,
        "iterations": [row.model_dump(include=numbers) | row.trajectories for row in found],
    }


def show_explanation(found: list[CurriculumChoice]) -> None:
    """Prints the choices."""
    console = out()
    table = make_table("iteration", "share", *KINDS, "<because")
    for row in found:
        counts = (str(row.trajectories[kind]) for kind in KINDS)
        table.add_row(str(row.iteration), f"{100 * row.weight:.1f} %", *counts, row.reason)
    console.print(found[0].task_id, style="bold")
    console.print(table)
