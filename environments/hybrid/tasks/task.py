"""Define a hybrid task: for each seed the values of its instruction, its files and pages, its goal, and a script that
solves it.

`@template(...)` adds a function of a random generator to the catalog; a module of this folder is a family. A goal is
data (`HybridGoal`), compared with the state of the sandbox (`environments.hybrid.sandbox`). A scripted policy plays the
script, so every task is known to be solvable.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from environments.hybrid.web import NOTHING, Web
from environments.placeholder import filled_in_order
from schemas.action import Action
from schemas.tables.task import TaskEntry

WORDS: tuple[str, ...] = (
    "amber", "anchor", "basil", "beacon", "birch", "cabin", "candle", "cedar", "clover", "copper", "coral", "dune",
    "ember", "falcon", "fern", "garnet", "glacier", "harbor", "hazel", "heron", "indigo", "island", "ivory", "jasper",
    "juniper", "kettle", "lagoon", "lantern", "linen", "maple", "marble", "meadow", "mint", "nectar", "olive", "onyx",
    "orchid", "pebble", "pepper", "pine", "quartz", "raven", "reef", "river", "saffron", "sage", "slate", "thistle",
    "tulip", "velvet", "walnut", "willow",
)  # fmt: skip
PEOPLE: tuple[str, ...] = (
    "Ada", "Boris", "Chen", "Dalia", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jana", "Kofi", "Lena", "Milo",
)  # fmt: skip
FAMILIES: tuple[str, ...] = (
    "Abel", "Brandt", "Costa", "Duran", "Eriksen", "Fischer", "Garcia", "Haas", "Ito", "Jansen", "Kovac",
)  # fmt: skip
CITIES: tuple[str, ...] = (
    "Bergen", "Cusco", "Dakar", "Galway", "Hobart", "Izmir", "Kyoto", "Leiden", "Lyon", "Oaxaca", "Riga", "Turin",
)  # fmt: skip
REGIONS: tuple[str, ...] = ("north", "south", "east", "west")


def words(chance: random.Random, count: int) -> list[str]:
    """Draws distinct words."""
    return chance.sample(WORDS, count)


def sentence(chance: random.Random, low: int = 4, high: int = 8) -> str:
    """Draws a sequence of words."""
    return " ".join(chance.choices(WORDS, k=chance.randint(low, high)))


def text(chance: random.Random, low: int = 4, high: int = 9) -> str:
    """Draws lines of words; the last line ends with a new line."""
    return lines(sentence(chance) for _ in range(chance.randint(low, high)))


def lines(each: Iterable[str]) -> str:
    """Joins lines to a text."""
    return "".join(f"{line}\n" for line in each)


def person(chance: random.Random) -> str:
    """Draws a first and a last name."""
    return f"{chance.choice(PEOPLE)} {chance.choice(FAMILIES)}"


def limit(chance: random.Random, numbers: Iterable[int]) -> int:
    """Draws one of these numbers, with some below it and some above, so that "above it" differs from "not below it"."""
    return chance.choice(sorted(set(numbers))[2:-2])


def csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Writes a table as CSV; no cell may have a comma."""
    return lines(",".join(map(str, row)) for row in (header, *rows))


Level = Literal["easy", "medium", "hard"]
"""easy: a click or two; medium: one command, or several clicks; hard: several commands, or a program to understand."""


@dataclass(frozen=True, slots=True)
class ClickOn:
    """A click on the element with this name."""

    name: str


Move = Action | ClickOn


@dataclass(frozen=True, slots=True)
class Trial:
    """A program whose test must pass and whose function must answer correctly. It runs in a fresh sandbox, with the
    current Python files in its folder and the original test."""

    path: str
    function: str
    cases: tuple[tuple[tuple[Any, ...], Any], ...]
    """Arguments and answers, as JSON values."""
    test: str = ""
    """The file of the test, if there is one."""


@dataclass(frozen=True, slots=True)
class HybridGoal:
    """The conditions of a goal, all of which must hold; other initial files must not change."""

    files: Mapping[str, bytes | str | None] = field(default_factory=dict[str, bytes | str | None])
    """Contents by path. Bytes must match exactly, in a plain file. Text ignores space at the ends of lines and of the
    file, and follows links within the sandbox's disks. None: the path must not exist, not even as a link or an
    unreadable file, and its initial content must not be elsewhere in `/work`."""
    names: tuple[str, ...] = ()
    """Paths of `files` whose lines are file names: `./` or `/work/` before a name makes no difference."""
    folders: tuple[str, ...] = ()
    """Folders that must exist."""
    executable: tuple[str, ...] = ()
    """Files that must be executable; no other initial file may be."""
    uploads: Mapping[str, bytes | str] = field(default_factory=dict[str, bytes | str])
    """The last upload of each form, compared like `files`."""
    page: str | None = None
    """The page that must be open."""
    opened: str | None = None
    """The file that must be open in the editor."""
    answer: str | None = None
    """The answer of `finished`, ignoring case and surrounding space."""
    trials: tuple[Trial, ...] = ()
    free: tuple[str, ...] = ()
    """Initial files that may change in any way."""


@dataclass(frozen=True, slots=True)
class HybridInstance:
    """A task with its seed."""

    words: tuple[object, ...]
    """The values for the `{}` of the instruction."""
    goal: HybridGoal
    script: Sequence[Move]
    files: Mapping[str, bytes | str] = field(default_factory=dict[str, bytes | str])
    web: Web = field(default_factory=lambda: NOTHING)

    @property
    def contents(self) -> dict[str, bytes]:
        """Returns the initial files, as bytes."""
        return {path: one if isinstance(one, bytes) else one.encode() for path, one in self.files.items()}


Make = Callable[[random.Random], HybridInstance]


@dataclass(frozen=True, slots=True)
class Template:
    """A task without its seed."""

    entry: TaskEntry
    make: Make

    def instance(self, name: str, seed: int) -> tuple[str, HybridInstance]:
        """Returns the instruction and the instance for a seed; equal seeds give equal instances."""
        made = self.make(random.Random(f"hybrid {name} {seed}"))
        return filled_in_order(self.entry.instruction, made.words), made


class Family:
    """The templates of one family, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.templates: dict[str, Template] = {}

    def template(self, name: str, instruction: str, level: Level, max_steps: int) -> Callable[[Make], Make]:
        """Adds a function of a random generator to the family as `FAMILY-NAME`."""

        def put(make: Make) -> Make:
            entry = TaskEntry(instruction=instruction, tags=("hybrid", self.name, level), max_steps=max_steps)
            self.templates[f"{self.name}-{name}"] = Template(entry, make)
            return make

        return put
