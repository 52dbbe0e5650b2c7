"""What a sandbox holds at one moment, and what of a task's goal is missing in it. Nothing runs here: what a program
answers was asked in a jail of its own (`environments.hybrid.trial`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from environments.hybrid.tasks.task import Goal


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is there."""

    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """By path, those that a goal or the beginning name; what is no plain file, or too large, is not there."""
    folders: frozenset[str] = frozenset()
    executable: frozenset[str] = frozenset()
    uploads: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    page: str = ""
    opened: str | None = None
    answer: str | None = None
    answers: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """By path of a program, what its function answered to the cases of its trial."""


def misses(goal: Goal, begun: Mapping[str, bytes], now: Snapshot) -> Iterator[str]:
    """What is not as the goal says, one by one; nothing where all of it is.

    Args:
        goal: of the task.
        begun: the files at first.
        now: what is there.
    """
    for path, wanted in goal.files.items():
        if not _same(wanted, now.files.get(path)):
            yield f"{path} is not as asked"
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
    for form, wanted in goal.uploads.items():
        if not _same(wanted, now.uploads.get(form)):
            yield f"{form} was not given what it asks for"
    if goal.page is not None and now.page != goal.page:
        yield f"the page is {now.page}"
    if goal.opened is not None and now.opened != goal.opened:
        yield f"{goal.opened} is not open"
    if goal.answer is not None and _plain(now.answer or "") != _plain(goal.answer):
        yield "the answer is another"
    for trial in goal.trials:
        if now.answers.get(trial.path) != tuple(answer for _, answer in trial.cases):
            yield f"{trial.path} answers wrong"


def _same(wanted: bytes | str | None, found: bytes | None) -> bool:
    if wanted is None or found is None:
        return wanted is None and found is None
    if isinstance(wanted, bytes):
        return wanted == found
    try:
        return _lines(wanted) == _lines(found.decode())
    except UnicodeDecodeError:
        return False


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
