"""Print to the terminal: a line per finished stage, messages and progress bars. Only this module makes consoles.

On a terminal, lines fit the width, and there are colours and progress bars. Piped or redirected output has no line
wrapping, colours or animations. Control characters in text from pages and models never reach a terminal. With
`FLYWHEEL_LOG=json`, each message on standard error is a JSON object on one line.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from common import log
from common.text import harmless, lasting
from schemas.tables.stage import PREPARE, StageResult, label_of
from tasks.running.run_status import CURRENT

UNBOUNDED = 100_000
"""Line width for output without wrapping, in characters. No message is as long."""
_listeners: list[Callable[[str], None]] = []
_caller_reports: ContextVar[bool] = ContextVar("caller_reports", default=False)


class SafeConsole(Console):
    """A console that prints text literally, without markup. Colours come from `Text` or `style`."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Render text without its control sequences. They are replaced before the text is measured, so nothing is
        cut."""
        return super().render_str(harmless(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, and replace all control sequences except those of rich."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else harmless(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)


class JsonConsole(SafeConsole):
    """A console that prints each line as a JSON object."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print one JSON object per call."""
        with self.capture() as captured:
            super().print(*objects, **options)
        if message := captured.get().strip():
            self.file.write(log.line("info", message) + "\n")
            self.file.flush()


def quiet() -> bool:
    """Whether the command prints nothing about its progress (`-q`)."""
    return log.volume() == "quiet"


_terminals: dict[int, tuple[TextIO, Console]] = {}


def out() -> Console:
    """Return the console of standard output."""
    return _console(sys.stdout)


def err() -> Console:
    """Return the console of standard error, for messages."""
    return _console(sys.stderr, JsonConsole if log.as_json() else SafeConsole)


def _console(stream: TextIO, kind: type[SafeConsole] = SafeConsole) -> Console:
    """Return the only console of a stream, so that lines and progress bars do not disturb each other."""
    if not stream.isatty() or kind is JsonConsole:
        return kind(
            file=stream, markup=False, highlight=False, width=UNBOUNDED, force_terminal=False, color_system=None
        )
    known = _terminals.get(id(stream))
    if known is None or known[0] is not stream:
        known = _terminals[id(stream)] = (stream, kind(file=stream, markup=False, highlight=False))
    return known[1]


@contextmanager
def now(head: str, name: str, last_time: Callable[[], float | None] = lambda: None) -> Iterator[None]:
    """Show one line on a terminal while a stage runs: its name, and its previous duration."""
    console = err()
    if not console.is_terminal or quiet():
        yield
        return
    about_s = last_time()
    duration = "" if about_s is None else f"about {lasting(about_s)}, as the last time"
    with console.status(_line(head, name, (duration, "dim"))):
        yield


def make_table(*columns: str, gap: int = 1) -> Table:
    """Return an empty table. A column named `<task` is aligned to the left, and `task` to the right.

    Args:
        columns: the names; names of several words need a `gap` of 2.
        gap: blanks between columns.
    """
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for name in columns:
        justify = "left" if name.startswith("<") else "right"
        table.add_column(name.removeprefix("<"), justify=justify, overflow="fold")
    return table


def listen(listener: Callable[[str], None]) -> None:
    """Also pass every printed line to `listener`, without colours."""
    _listeners.append(listener)


def print_line(text: str) -> None:
    """Print one line literally, without markup."""
    err().print(text, markup=False, soft_wrap=True)
    for listener in _listeners:
        listener(text)


def log_progress(text: str) -> None:
    """Print one line about progress, unless the command is quiet. `listen` callbacks do not get the line."""
    if quiet():
        return
    err().print(text, markup=False, soft_wrap=True)


@contextmanager
def caller_reports() -> Iterator[None]:
    """Mark that the caller of the enclosed flow reports an early end itself (`log_end`)."""
    before = _caller_reports.set(True)
    try:
        yield
    finally:
        _caller_reports.reset(before)


def log_end(text: str) -> None:
    """Print the reason why a flow ends early. If the flow's caller reports it, only `listen` callbacks get the line."""
    if not _caller_reports.get():
        print_line(text)
        return
    for listener in _listeners:
        listener(text)


def log_stage(iteration: int, name: str, wall_s: float, result: StageResult) -> None:
    """Print one line: the iteration, the stage, its seconds and its headline; nothing if the command is quiet."""
    if quiet():
        return
    if log.as_json():
        fields = {"iteration": iteration, "stage": name, "seconds": round(wall_s, 3), "numbers": result.stored}
        sys.stderr.write(log.line("info", f"{name}: {result}", fields) + "\n")
        sys.stderr.flush()
        return
    err().print(_line(head_of(iteration), name, f"{wall_s:6.1f} s  {harmless(str(result))}"))


def log_part(head: str, name: str, text: str, last: bool = True) -> None:
    """Print one line about a part of a run outside an iteration.

    Args:
        head: subject of the run.
        name: name of the part.
        text: the message.
        last: whether the part has ended. `listen` callbacks get only the line of the end.
    """
    if not quiet():
        err().print(_line(head, name, text))
    for listener in _listeners if last else ():
        listener(f"{head}  {name} {text.strip()}".strip())


def head_of(iteration: int) -> str:
    """Return the prefix of lines about an iteration."""
    return "start" if iteration == PREPARE else label_of(iteration)


def _line(head: str, name: str, rest: str | tuple[str, str]) -> Text:
    return Text.assemble((f"{head:>12}", "dim"), "  ", (f"{name:<10}", "bold"), " ", rest)


class _Reporting(Progress):
    """A progress bar that also updates the current status of the process, also while the bar is invisible."""

    def update(self, task_id: TaskID, **fields: Any) -> None:
        super().update(task_id, **fields)
        self._report(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._report(task_id)

    def _report(self, task_id: TaskID) -> None:
        with self._lock:
            shown = self._tasks[task_id]
        CURRENT.progress(shown.description, shown.completed, shown.total, str(shown.fields.get("message", "")))


def bar(transient: bool = True) -> Progress:
    """Return a progress bar in this project's style. Its tasks may have a field `message`."""
    console = err()
    return _Reporting(
        TextColumn("{task.description:>14}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", markup=False),
        console=console,
        transient=transient,
        disable=not console.is_terminal or quiet(),
    )
