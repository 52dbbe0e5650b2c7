"""Define tasks in a text editor."""

import random
from collections.abc import Mapping

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.task import PHRASES, THINGS, WORDS, DesktopInstance, DesktopTask, lines
from schemas.tables.task import TaskEntry

FILE = "notes.txt"
EDITOR = (("mousepad", f"~/{FILE}"),)


def _write_note(chance: random.Random) -> DesktopInstance:
    phrase = chance.choice(PHRASES)
    return DesktopInstance((phrase,), DesktopGoal({FILE: phrase.encode()}), {FILE: b""}, EDITOR)


def _append_line(chance: random.Random) -> DesktopInstance:
    *before, last = chance.sample(THINGS, chance.randint(4, 7))
    return DesktopInstance((last,), DesktopGoal({FILE: lines(*before, last)}), {FILE: lines(*before)}, EDITOR)


def _delete_line(chance: random.Random) -> DesktopInstance:
    listed = chance.sample(THINGS, chance.randint(4, 7))
    gone = chance.choice(listed)
    kept = [thing for thing in listed if thing != gone]
    return DesktopInstance((gone,), DesktopGoal({FILE: lines(*kept)}), {FILE: lines(*listed)}, EDITOR)


def _replace_word(chance: random.Random) -> DesktopInstance:
    old, new, *others = chance.sample(WORDS, 6)
    rows = [" ".join(chance.choices([old, *others], k=5)) for _ in range(4)] + [f"{old} {old}"]
    wanted = [row.replace(old, new) for row in rows]
    return DesktopInstance((old, new), DesktopGoal({FILE: lines(*wanted)}), {FILE: lines(*rows)}, EDITOR)


def _copy_line(chance: random.Random) -> DesktopInstance:
    rows = [f"{word}: {chance.randrange(100, 1000)}" for word in chance.sample(WORDS, 6)]
    wanted = chance.choice(rows)
    return DesktopInstance((wanted.split(":")[0],), DesktopGoal(clipboard=wanted), {FILE: lines(*rows)}, EDITOR)


TASKS: Mapping[str, DesktopTask] = {
    "write-note": DesktopTask(
        TaskEntry(
            instruction='Write "{}" into the open file, and save it.', tags=("desktop", "editor", "typing"), max_steps=8
        ),
        _write_note,
    ),
    "append-line": DesktopTask(
        TaskEntry(
            instruction='Add "{}" as the last line of the open file, and save it.',
            tags=("desktop", "editor", "typing"),
            max_steps=10,
        ),
        _append_line,
    ),
    "delete-line": DesktopTask(
        TaskEntry(
            instruction='Take the line "{}" out of the open file, and save it.',
            tags=("desktop", "editor"),
            max_steps=12,
        ),
        _delete_line,
    ),
    "replace-word": DesktopTask(
        TaskEntry(
            instruction='Write "{1}" in place of every "{0}" in the open file, and save it.',
            tags=("desktop", "editor", "dialog"),
            max_steps=16,
        ),
        _replace_word,
    ),
    "copy-line": DesktopTask(
        TaskEntry(
            instruction='Copy the line that begins with "{}" to the clipboard; leave the file as it is.',
            tags=("desktop", "editor", "clipboard"),
            max_steps=10,
        ),
        _copy_line,
    ),
}
