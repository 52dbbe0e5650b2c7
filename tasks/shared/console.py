"""What a person sees: the one place that makes consoles, a line per finished stage, a bar while something long runs.

On a terminal lines fit its width, and there are colours and bars; what is piped or redirected is read by programs and
by later readers, so it is never wrapped, coloured or animated, whatever width the environment tells.
"""

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from schemas.tables.stage import PREPARE, label_of
from tasks.shared.now import MOMENT

UNBOUNDED = 100_000
"""Characters that no line of ours has."""


def out() -> Console:
    """Standard output."""
    return _console(stderr=False)


def err() -> Console:
    """Standard error: what is printed while results are made."""
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    if (sys.stderr if stderr else sys.stdout).isatty():
        return Console(stderr=stderr, highlight=False)
    return Console(stderr=stderr, highlight=False, width=UNBOUNDED, force_terminal=False, color_system=None)


def say(text: str) -> None:
    """One line of what happens, as it is: nothing in it is markup."""
    err().print(text, markup=False, soft_wrap=True)


def say_stage(iteration: int, name: str, wall_s: float, numbers: Mapping[str, Any]) -> None:
    """One line: iteration, stage, seconds, and the stage's headline."""
    head = "start" if iteration == PREPARE else label_of(iteration)
    err().print(f"[dim]{head:>12}[/dim]  [bold]{name:<10}[/bold] {wall_s:6.1f} s  {numbers.get('say', '')}")


class _Told(Progress):
    """A bar that also tells the moment how far it has come, whether or not it is seen."""

    def update(self, task_id: TaskID, **fields: Any) -> None:
        super().update(task_id, **fields)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        with self._lock:
            shown = self._tasks[task_id]
        MOMENT.progress(shown.description, shown.completed, shown.total, str(shown.fields.get("message", "")))


def bar(transient: bool = True) -> Progress:
    """A progress bar in our style; its tasks may set a `message` field."""
    console = err()
    return _Told(
        TextColumn("{task.description:>14}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}"),
        console=console,
        transient=transient,
        disable=not console.is_terminal,
    )
