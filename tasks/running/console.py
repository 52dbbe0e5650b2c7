"""Print to the terminal: the one module that makes consoles, with a line per finished stage and progress bars.

On a terminal lines fit its width, and there are colours and bars. Piped or redirected output is for programs and later
readers, so it is never wrapped, coloured or animated, whatever width the environment has. Printed text may come from
pages and models, so no control character of theirs reaches a terminal. With `FLYWHEEL_LOG=json` messages on standard
error are JSON, an object a line.
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
"""Line width that no message reaches, in characters."""
_listeners: list[Callable[[str], None]] = []
_caller_reports: ContextVar[bool] = ContextVar("caller_reports", default=False)


class SafeConsole(Console):
    """A console that takes text literally: no markup is parsed; colours are given as `Text` or `style`."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Render without control sequences of the text; before it is measured, so that nothing is cut."""
        return super().render_str(harmless(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, and write out control sequences unless they are rich's own."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else harmless(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)


class JsonConsole(SafeConsole):
    """A console that prints each line as a JSON object."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print one object for each call."""
        with self.capture() as captured:
            super().print(*objects, **options)
        if message := captured.get().strip():
            self.file.write(log.line("info", message) + "\n")
            self.file.flush()


_terminals: dict[int, tuple[TextIO, Console]] = {}


def out() -> Console:
    """Return the console of standard output."""
    return _console(sys.stdout)


def err() -> Console:
    """Return the console of standard error, for messages while results are made."""
    return _console(sys.stderr, JsonConsole if log.as_json() else SafeConsole)


def _console(stream: TextIO, kind: type[SafeConsole] = SafeConsole) -> Console:
    """Return the one console of a terminal, so that lines, bars and other output do not disturb each other."""
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
    """Show one line on a terminal while a stage works: its name, and its last duration."""
    console = err()
    if not console.is_terminal:
        yield
        return
    about_s = last_time()
    duration = "" if about_s is None else f"about {lasting(about_s)}, as the last time"
    with console.status(_line(head, name, (duration, "dim"))):
        yield


def make_table(*columns: str) -> Table:
    """Return an empty table of columns: `<task` is aligned to the left, `task` to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in columns:
        justify = "left" if name.startswith("<") else "right"
        table.add_column(name.removeprefix("<"), justify=justify, overflow="fold")
    return table


def listen(listener: Callable[[str], None]) -> None:
    """Pass every printed line to `listener` as well from now on, without colours."""
    _listeners.append(listener)


def print_line(text: str) -> None:
    """Print one line literally, without markup."""
    err().print(text, markup=False, soft_wrap=True)
    for listener in _listeners:
        listener(text)


def log_progress(text: str) -> None:
    """Print one line on the progress, which `listen` callbacks do not get."""
    err().print(text, markup=False, soft_wrap=True)


@contextmanager
def caller_reports() -> Iterator[None]:
    """Within it, the flow's caller reports an early end itself (`log_end`)."""
    before = _caller_reports.set(True)
    try:
        yield
    finally:
        _caller_reports.reset(before)


def log_end(text: str) -> None:
    """Print why a flow ends early; only to `listen` callbacks where its caller reports it."""
    if not _caller_reports.get():
        print_line(text)
        return
    for listener in _listeners:
        listener(text)


def log_stage(iteration: int, name: str, wall_s: float, result: StageResult) -> None:
    """Print one line: iteration, stage, seconds, and the stage's headline."""
    if log.as_json():
        fields = {"iteration": iteration, "stage": name, "seconds": round(wall_s, 3), "numbers": result.stored}
        sys.stderr.write(log.line("info", f"{name}: {result}", fields) + "\n")
        sys.stderr.flush()
        return
    err().print(_line(head_of(iteration), name, f"{wall_s:6.1f} s  {harmless(str(result))}"))


def log_part(head: str, name: str, text: str, last: bool = True) -> None:
    """Print one line on a part of a run outside an iteration.

    Args:
        head: the run's subject.
        name: the part's.
        text: the message.
        last: whether the part is over; `listen` callbacks do not get its begin.
    """
    err().print(_line(head, name, text))
    for listener in _listeners if last else ():
        listener(f"{head}  {name} {text.strip()}".strip())


def head_of(iteration: int) -> str:
    """Return the start of the lines on an iteration."""
    return "start" if iteration == PREPARE else label_of(iteration)


def _line(head: str, name: str, rest: str | tuple[str, str]) -> Text:
    return Text.assemble((f"{head:>12}", "dim"), "  ", (f"{name:<10}", "bold"), " ", rest)


class _Reporting(Progress):
    """A bar that also reports its progress to the current status, whether or not it is visible."""

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
    """Return a progress bar in this project's style; its tasks may set a `message` field."""
    console = err()
    return _Reporting(
        TextColumn("{task.description:>14}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", markup=False),
        console=console,
        transient=transient,
        disable=not console.is_terminal,
    )
