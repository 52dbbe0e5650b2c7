"""Define tasks with the windows themselves: each window's title names the colour of its content."""

import random
from collections.abc import Mapping

from environments.desktop.goal import DesktopGoal, Want
from environments.desktop.tasks.task import Command, DesktopInstance, DesktopTask
from schemas.tables.task import TaskEntry

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


def _half(chance: random.Random) -> DesktopInstance:
    colour, side = chance.choice(sorted(COLOURS)), chance.choice(("left", "right"))
    start = "38x10+560+200" if side == "left" else "38x10+60+200"
    goal = DesktopGoal(windows={colour: "left half" if side == "left" else "right half"})
    return DesktopInstance((colour, side), goal, {}, (_terminal(colour, start),))


TASKS: Mapping[str, DesktopTask] = {
    "choose-window": DesktopTask(
        TaskEntry(instruction='Make "{}" the window that keys go to.', tags=("desktop", "windows"), max_steps=4),
        lambda chance: _windows(chance, "active"),
    ),
    "close-window": DesktopTask(
        TaskEntry(
            instruction='Close the window "{}", and leave the others open.', tags=("desktop", "windows"), max_steps=4
        ),
        lambda chance: _windows(chance, "closed"),
    ),
    "maximise-window": DesktopTask(
        TaskEntry(instruction='Maximise the window "{}".', tags=("desktop", "windows"), max_steps=4),
        lambda chance: _windows(chance, "maximised"),
    ),
    "minimise-window": DesktopTask(
        TaskEntry(instruction='Minimise the window "{}".', tags=("desktop", "windows"), max_steps=4),
        lambda chance: _windows(chance, "minimised"),
    ),
    "move-window": DesktopTask(
        TaskEntry(
            instruction='Move the window "{}" to the {} half of the screen.',
            tags=("desktop", "windows", "drag"),
            max_steps=6,
        ),
        _half,
    ),
}
