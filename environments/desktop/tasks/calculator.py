"""Tasks with a calculator, one of them with an editor as well."""

import random
from collections.abc import Mapping

from environments.desktop.goal import Goal
from environments.desktop.tasks.editor import EDITOR, FILE
from environments.desktop.tasks.task import DesktopTask, Instance, lines
from schemas.tables.task import TaskEntry

CALCULATOR = (("galculator",),)


def _calculate(chance: random.Random) -> Instance:
    one, other = chance.randrange(12, 99), chance.randrange(12, 99)
    return Instance((one, other), Goal(clipboard=str(one * other)), {}, CALCULATOR)


def _note_result(chance: random.Random) -> Instance:
    one, other, less = chance.randrange(100, 999), chance.randrange(100, 999), chance.randrange(10, 99)
    wanted = {FILE: lines(str(one + other - less))}
    return Instance((one, other, less), Goal(wanted), {FILE: b""}, (*CALCULATOR, *EDITOR))


TASKS: Mapping[str, DesktopTask] = {
    "calculate": DesktopTask(
        TaskEntry(
            instruction="Work out {} times {} with the calculator, and copy the result to the clipboard.",
            tags=("desktop", "calculator", "clipboard"),
            max_steps=12,
        ),
        _calculate,
    ),
    "note-result": DesktopTask(
        TaskEntry(
            instruction="Work out {} plus {} minus {}, write the result into the open file, and save it.",
            tags=("desktop", "calculator", "editor"),
            max_steps=16,
        ),
        _note_result,
    ),
}
