"""Draw the parts of tasks from a seed's random generator: words, names, tables."""

import random
from collections.abc import Iterable, Sequence

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
