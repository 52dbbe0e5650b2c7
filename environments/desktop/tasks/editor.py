"""Define tasks in a text editor."""

import random

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.task import PHRASES, THINGS, WORDS, DesktopInstance, DesktopProgram, lines

PROGRAM = DesktopProgram("editor")
task = PROGRAM.task

FILE = "notes.txt"
EDITOR = (("mousepad", f"~/{FILE}"),)


@task("write-note", 'Write "{}" into the open file, and save it.', "typing", 8)
def _write_note(chance: random.Random) -> DesktopInstance:
    phrase = chance.choice(PHRASES)
    return DesktopInstance((phrase,), DesktopGoal({FILE: phrase.encode()}), {FILE: b""}, EDITOR)


@task("append-line", 'Add "{}" as the last line of the open file, and save it.', "typing", 10)
def _append_line(chance: random.Random) -> DesktopInstance:
    *before, last = chance.sample(THINGS, chance.randint(4, 7))
    return DesktopInstance((last,), DesktopGoal({FILE: lines(*before, last)}), {FILE: lines(*before)}, EDITOR)


@task("delete-line", 'Take the line "{}" out of the open file, and save it.', "", 12)
def _delete_line(chance: random.Random) -> DesktopInstance:
    listed = chance.sample(THINGS, chance.randint(4, 7))
    gone = chance.choice(listed)
    kept = [thing for thing in listed if thing != gone]
    return DesktopInstance((gone,), DesktopGoal({FILE: lines(*kept)}), {FILE: lines(*listed)}, EDITOR)


@task("replace-word", 'Write "{1}" in place of every "{0}" in the open file, and save it.', "dialog", 16)
def _replace_word(chance: random.Random) -> DesktopInstance:
    old, new, *others = chance.sample(WORDS, 6)
    rows = [" ".join(chance.choices([old, *others], k=5)) for _ in range(4)] + [f"{old} {old}"]
    wanted = [row.replace(old, new) for row in rows]
    return DesktopInstance((old, new), DesktopGoal({FILE: lines(*wanted)}), {FILE: lines(*rows)}, EDITOR)


@task("copy-line", 'Copy the line that begins with "{}" to the clipboard; leave the file as it is.', "clipboard", 10)
def _copy_line(chance: random.Random) -> DesktopInstance:
    rows = [f"{word}: {chance.randrange(100, 1000)}" for word in chance.sample(WORDS, 6)]
    wanted = chance.choice(rows)
    return DesktopInstance((wanted.split(":")[0],), DesktopGoal(clipboard=wanted), {FILE: lines(*rows)}, EDITOR)
