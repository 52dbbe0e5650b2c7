"""What a person sees while the wheel turns: one line per finished stage, a bar while something long runs."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

console = Console(stderr=True, highlight=False)


def say_stage(iteration: int, name: str, wall_s: float, numbers: Mapping[str, Any]) -> None:
    """One line: iteration, stage, seconds, and the stage's headline."""
    head = "start" if iteration < 0 else f"iteration {iteration}"
    said = numbers.get("say", "")
    console.print(f"[dim]{head:>12}[/dim]  [bold]{name:<10}[/bold] {wall_s:6.1f} s  {said}")


def bar(transient: bool = True) -> Progress:
    """A progress bar in the house style; its tasks may set a `said` field."""
    return Progress(
        TextColumn("{task.description:>14}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
        console=console,
        transient=transient,
        disable=not console.is_terminal,
    )
