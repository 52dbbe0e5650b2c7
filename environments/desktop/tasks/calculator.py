"""Define tasks with a calculator, one of which also has an editor."""

import random

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.editor import EDITOR, FILE
from environments.desktop.tasks.task import DesktopInstance, DesktopProgram, lines

PROGRAM = DesktopProgram("calculator")
task = PROGRAM.task

CALCULATOR = (("galculator",),)


def _numbers(chance: random.Random, *lengths: int) -> list[int]:
    """Draws numbers without repeated digits.

    The calculator ignores a repeated key within a quarter of a second, and agents type a text at once.
    """
    digits = chance.sample("123456789", sum(lengths))
    return [int("".join(digits.pop() for _ in range(length))) for length in lengths]


@task("calculate", "Work out {} times {} with the calculator, and copy the result to the clipboard.", "clipboard", 12)
def _calculate(chance: random.Random) -> DesktopInstance:
    one, other = _numbers(chance, 2, 2)
    return DesktopInstance((one, other), DesktopGoal(clipboard=str(one * other)), {}, CALCULATOR)


@task("note-result", "Work out {} plus {} minus {}, write the result into the open file, and save it.", "editor", 16)
def _note_result(chance: random.Random) -> DesktopInstance:
    one, other, less = _numbers(chance, 3, 3, 2)
    wanted = {FILE: lines(str(one + other - less))}
    return DesktopInstance((one, other, less), DesktopGoal(wanted), {FILE: b""}, (*CALCULATOR, *EDITOR))
