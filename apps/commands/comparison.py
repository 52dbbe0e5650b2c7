"""Implement `flywheel diff LAKE LAKE` and `flywheel diff RUN RUN`: print two lakes or runs, and their differences."""

from apps.commands.difference import SHOWN
from apps.options import print_line
from flywheel.comparison import HistoryComparison
from schemas.tables.stage import label_of
from tasks.running.budget import short
from tasks.running.console import make_table, out
from tasks.shared.status import IterationStatus

TASKS_OF = {"held_out": "held-out tasks", "synthesized": "made tasks"}
"""Names of the suites other than the tasks of the training."""


def show_comparison(found: HistoryComparison) -> None:
    """Prints the comparison, the largest changes first."""
    a, b, console = found.a, found.b, out()
    table = make_table("<", f"<{a.name}", f"<{b.name}", gap=2)
    table.add_row("policy", a.version or "none", b.version or "none")
    for one, two in found.curve:
        table.add_row(f"success, {label_of_pair(one, two)}", _success(one), _success(two))
    shown = list(found.tasks.items())[:SHOWN]
    for task, (one, two) in shown:
        table.add_row(task, _number(one), _number(two))
    for name, (before, after) in found.data.items():
        table.add_row(name, f"{before:,}", f"{after:,}")
    for name, (one, two) in found.cost.items():
        if one or two:
            table.add_row(f"cost, {name}", short(one), short(two))
    for key, (one, two) in found.config.items():
        table.add_row(key, str(one), str(two))
    console.print(table)
    if (more := len(found.tasks) - len(shown)) > 0:
        print_line(f"{more} more tasks are in --json.")
    if (at := found.success).n:
        print_line(
            f"{b.version} of the second minus {a.version} of the first: {at.mean:+.3f} ({at.low:+.3f} to "
            f"{at.high:+.3f}) over {at.n} pairs of tasks and seeds."
        )
    else:
        print_line("The policies have no task and seed of the suite in common.")
    for suite, at in found.others.items():
        print_line(f"On {TASKS_OF[suite]}: {at.mean:+.3f} ({at.low:+.3f} to {at.high:+.3f}) over {at.n} pairs.")


def label_of_pair(a: IterationStatus | None, b: IterationStatus | None) -> str:
    """Returns the label of two iterations in the same place of a curve, such as `iteration 0 and 2`."""
    numbers = sorted({one.iteration for one in (a, b) if one is not None})
    return label_of(numbers[0]) + "".join(f" and {number}" for number in numbers[1:])


def _success(row: IterationStatus | None) -> str:
    if row is None or row.success is None:
        return "-"
    return f"{row.success:.3f}" + (" ({:.2f} to {:.2f})".format(*row.ci) if row.ci else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
