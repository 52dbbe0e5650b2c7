"""Define tasks with a calculator, one of which also has an editor."""

import random
from collections.abc import Mapping

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.editor import EDITOR, FILE
from environments.desktop.tasks.task import DesktopInstance, DesktopTask, lines
from schemas.tables.task import TaskEntry

CALCULATOR = (("galculator",),)


def _numbers(chance: random.Random, *lengths: int) -> list[int]:
    """Draws numbers without repeated digits.

    The calculator ignores a repeated key within a quarter of a second, and agents type a text at once.
    """
    digits = chance.sample("123456789", sum(lengths))
    return [int("".join(digits.pop() for _ in range(length))) for length in lengths]


def _calculate(chance: random.Random) -> DesktopInstance:
    one, other = _numbers(chance, 2, 2)
    return DesktopInstance((one, other), DesktopGoal(clipboard=str(one * other)), {}, CALCULATOR)


def _note_result(chance: random.Random) -> DesktopInstance:
    one, other, less = _numbers(chance, 3, 3, 2)
    wanted = {FILE: lines(str(one + other - less))}
    return DesktopInstance((one, other, less), DesktopGoal(wanted), {FILE: b""}, (*CALCULATOR, *EDITOR))


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
