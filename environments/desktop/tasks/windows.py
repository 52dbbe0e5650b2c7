"""Define tasks with the windows themselves: each window's title names the colour of its content."""

import random
from collections.abc import Mapping
from functools import partial

from environments.desktop.goal import DesktopGoal, Want
from environments.desktop.tasks.task import Command, DesktopInstance, DesktopProgram

PROGRAM = DesktopProgram("windows")
task = PROGRAM.task
COLOURS = {
    "blue": "#1e3a8a", "brown": "#5b3a1a", "green": "#14532d", "grey": "#374151", "purple": "#4c1d95",
    "red": "#7f1d1d", "teal": "#134e4a", "yellow": "#854d0e",
}  # fmt: skip


def _terminal(colour: str, place: str) -> Command:
    return ("xterm", "-title", colour, "-bg", COLOURS[colour], "-fg", "white", "-geometry", place)


def _windows(chance: random.Random, want: Want) -> DesktopInstance:
    """Makes three windows; one has a goal state, and the others must not change."""
    colours = chance.sample(sorted(COLOURS), 3)
    places = chance.sample(("38x8+40+60", "38x8+430+120", "38x8+120+300", "38x8+520+420", "38x8+60+520"), 3)
    goal: dict[str, Want] = {colours[0]: want, colours[1]: "shown", colours[2]: "shown"}
    order = chance.sample(colours, 3)
    if want == "active" and order[-1] == colours[0]:  # the last opened window already has the focus
        order.reverse()
    opened = [_terminal(colour, place) for colour, place in zip(order, places, strict=True)]
    return DesktopInstance((colours[0],), DesktopGoal(windows=goal), {}, tuple(opened))


_ASKED: Mapping[Want, tuple[str, str]] = {
    "active": ("choose-window", 'Make "{}" the window that keys go to.'),
    "closed": ("close-window", 'Close the window "{}", and leave the others open.'),
    "maximised": ("maximise-window", 'Maximise the window "{}".'),
    "minimised": ("minimise-window", 'Minimise the window "{}".'),
}
for _want, (_name, _instruction) in _ASKED.items():
    task(_name, _instruction, "", 4)(partial(_windows, want=_want))


@task("move-window", 'Move the window "{}" to the {} half of the screen.', "drag", 6)
def _half(chance: random.Random) -> DesktopInstance:
    colour, side = chance.choice(sorted(COLOURS)), chance.choice(("left", "right"))
    start = "38x10+560+200" if side == "left" else "38x10+60+200"
    goal = DesktopGoal(windows={colour: "left half" if side == "left" else "right half"})
    return DesktopInstance((colour, side), goal, {}, (_terminal(colour, start),))
