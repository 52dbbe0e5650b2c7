"""Compare the state of a sandbox with a task's goal. This module runs no program; a program's answers come from its own
sandbox (`environments.hybrid.sandbox`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from environments.hybrid.tasks.task import HybridGoal


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a sandbox at one time."""

    files: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Contents by path of each file that the goal or the initial state names, and of all files if the goal removes a
    file. None for a path that is no plain file or too large. A path that is not listed does not exist."""
    whole: bool = True
    """Whether all files could be listed."""
    folders: frozenset[str] = frozenset()
    executable: frozenset[str] = frozenset()
    """Executable files among those of the goal and of the initial state."""
    uploads: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    page: str = ""
    opened: str | None = None
    answer: str | None = None
    answers: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """The answers of a program's function to the cases of its trial, by path of the program."""


def misses(goal: HybridGoal, begun: Mapping[str, bytes], now: Snapshot) -> Iterator[str]:
    """Yields each difference between the state and the goal.

    Args:
        goal: goal of the task.
        begun: the initial files.
        now: the current state.
    """
    for path, wanted in goal.files.items():
        if wanted is None and path in now.files:
            yield f"{path} is there"
        if wanted is not None and not _same(wanted, now.files.get(path), path in goal.names):
            yield f"{path} is not as asked"
    gone = {begun[path] for path, wanted in goal.files.items() if wanted is None and path in begun}
    for path in now.files.keys() - begun.keys() - goal.files.keys():
        if now.files[path] in gone:
            yield f"{path} has the content that was to be removed"
    if gone and not now.whole:
        yield "too many files to check that it is gone"
    programs = {trial.path for trial in goal.trials}
    for path, content in begun.items():
        if path not in goal.files and path not in goal.free and path not in programs and now.files.get(path) != content:
            yield f"{path} was changed"
    for path in goal.folders:
        if path not in now.folders:
            yield f"there is no folder {path}"
    for path in goal.executable:
        if path not in now.executable:
            yield f"{path} cannot be run"
    if goal.executable:
        yield from (f"{path} can be run, too" for path in begun if path in now.executable - {*goal.executable})
    for form, wanted in goal.uploads.items():
        if not _same(wanted, now.uploads.get(form)):
            yield f"{form} did not get the expected file"
    if goal.page is not None and now.page != goal.page:
        yield f"the page is {now.page}"
    if goal.opened is not None and now.opened != goal.opened:
        yield f"{goal.opened} is not open"
    if goal.answer is not None and _plain(now.answer or "") != _plain(goal.answer):
        yield "the answer is another"
    for trial in goal.trials:
        if now.answers.get(trial.path) != tuple(answer for _, answer in trial.cases):
            yield f"{trial.path} answers wrong"


def _same(wanted: bytes | str, found: bytes | None, names: bool = False) -> bool:
    if found is None:
        return False
    if isinstance(wanted, bytes):
        return wanted == found
    try:
        lines = _lines(found.decode())
    except UnicodeDecodeError:
        return False
    return _lines(wanted) == ([line.removeprefix("/work/").removeprefix("./") for line in lines] if names else lines)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
