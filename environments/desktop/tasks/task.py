"""Define a desktop task: its entry in the catalog, and its variants by seed."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from environments.desktop.goal import DesktopGoal
from environments.desktop.isolation import HOME
from schemas.tables.task import TaskEntry

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DesktopInstance:
    """A task with its seed."""

    words: tuple[object, ...]
    """The values for the `{}` of its instruction."""
    goal: DesktopGoal
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files in the home at the start, by path; a folder ends with a slash."""
    programs: tuple[Command, ...] = ()
    """The programs that are opened in order, each with its own window; a path below the home begins with `~/`."""


Make = Callable[[random.Random], DesktopInstance]


@dataclass(frozen=True, slots=True)
class DesktopTask:
    """A task, with a function that makes its instance for a seed."""

    entry: TaskEntry
    make: Make

    def instance(self, template: str, seed: int) -> DesktopInstance:
        """Returns the instruction and the instance for a seed."""
        return self.make(random.Random(f"{template} {seed}"))


class DesktopProgram:
    """The tasks of one program, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[str, DesktopTask] = {}

    def task(self, name: str, instruction: str, tag: str, max_steps: int) -> Callable[[Make], Make]:
        """Adds a function of a random generator as a task; `tag` is a further tag, if not empty."""

        def put(make: Make) -> Make:
            tags = ("desktop", self.name, tag) if tag else ("desktop", self.name)
            self.tasks[name] = DesktopTask(TaskEntry(instruction=instruction, tags=tags, max_steps=max_steps), make)
            return make

        return put


NAMES = (
    "anna", "berit", "carlo", "dina", "emil", "farah", "goran", "hilde", "ivo", "jana", "kofi", "lena", "mario", "nora",
    "oskar", "petra",
)  # fmt: skip
THINGS = (
    "apples", "bread", "candles", "dates", "eggs", "flour", "grapes", "honey", "ink", "jam", "kale", "lemons", "milk",
    "nuts", "oats", "pears", "rice", "salt", "tea", "yeast",
)  # fmt: skip
WORDS = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "lagoon",
    "marsh", "notch", "orchard", "prairie", "quarry", "ridge", "shoal", "tundra",
)  # fmt: skip
PHRASES = (
    "call the plumber at nine", "meet at the old bridge", "the key is under the mat", "Grüße aus Köln",
    "two coffees, please", "déjà vu at the café", "room 12 is free: ask for it!", "pay 30 € by Friday",
    "bring a coat & gloves", "the train leaves at 7:45", "čaj a koláče", "привет из Москвы",
)  # fmt: skip


def lines(*texts: str) -> bytes:
    """Returns the content of a text file with these lines."""
    return "".join(f"{text}\n" for text in texts).encode()


def in_home(argument: str, home: str = HOME) -> str:
    """Replaces `~` by the home in an argument of a command."""
    return home + argument[1:] if argument.startswith("~/") or argument == "~" else argument
