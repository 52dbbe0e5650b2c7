"""Compare generated pages with the suites: shared phrases, shared markup, and the nearest screens.

Pages for pretraining must have nothing of a suite, or its success would be no evidence.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

PHRASE = 5
"""Words of a compared phrase of an instruction."""
MARKUP = 8
"""Consecutive elements of a compared part of a document."""
MIN_BITS = 12
"""Minimum number of the 512 bits of the difference hash (`curation.pictures`) in which a page and a screen of a suite
differ. Near-identical screens differ in at most 8."""
PLAIN: frozenset[str] = frozenset()
"""Phrases of plain English that instructions of pages and of suites may share."""


@dataclass(slots=True)
class Evidence:
    """Phrases, markup and screens of some tasks."""

    phrases: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    markup: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    looks: dict[int, str] = field(default_factory=dict[int, str])
    """Name of a screen by the bits of its difference hash."""
    screens: int = 0
    """Number of added screens."""

    def add(self, name: str, instruction: str, elements: Sequence[str], look: int) -> None:
        """Adds one screen of a task."""
        self.screens += 1
        self.phrases.update(phrases_of(instruction))
        self.markup.update(grams(elements, MARKUP))
        self.looks.setdefault(look, name)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Data that pages share with suites."""

    phrases: tuple[str, ...]
    markup: tuple[str, ...]
    bits: int | None
    """Smallest number of bits in which a page and a screen of a suite differ; None without screens."""
    nearest: tuple[str, str] | None
    """Names of that page and of that screen."""

    @property
    def apart(self) -> bool:
        """Whether the pages have nothing of the suites."""
        return not self.phrases and not self.markup and (self.bits is None or self.bits >= MIN_BITS)


def grams(items: Sequence[str], size: int) -> set[tuple[str, ...]]:
    """Returns all runs of `size` consecutive items."""
    return {tuple(items[at : at + size]) for at in range(len(items) - size + 1)}


def phrases_of(instruction: str) -> set[tuple[str, ...]]:
    """Returns the phrases of an instruction, in lower case and without punctuation."""
    return grams(re.findall(r"[^\W_]+(?:['’][^\W_]+)*", instruction.lower()), PHRASE)


def overlap(pages: Evidence, suites: Evidence) -> Overlap:
    """Compares pages with suites. Phrases of `PLAIN` do not count."""
    phrases = sorted({" ".join(one) for one in pages.phrases & suites.phrases} - PLAIN)
    markup = sorted(" > ".join(one) for one in pages.markup & suites.markup)
    if not pages.looks or not suites.looks:
        return Overlap(tuple(phrases), tuple(markup), None, None)
    bits, page, screen = nearest(list(pages.looks), list(suites.looks))
    names = (list(pages.looks.values())[page], list(suites.looks.values())[screen])
    return Overlap(tuple(phrases), tuple(markup), bits, names)


def nearest(some: Sequence[int], others: Sequence[int]) -> tuple[int, int, int]:
    """Finds the two hashes, one of each list, that differ in the fewest bits.

    Returns:
        The number of bits, and the place of the hash in each list.
    """
    left, right = _words(some), _words(others)
    found = (10**6, 0, 0)
    for at, row in enumerate(right):
        apart = np.bitwise_count(left ^ row).sum(axis=1)
        best = int(apart.argmin())
        found = min(found, (int(apart[best]), best, at))
    return found


def _words(hashes: Iterable[int]) -> np.ndarray:
    """Returns hashes as rows of eight words of 64 bits."""
    return np.frombuffer(b"".join(one.to_bytes(64, "big") for one in hashes), np.uint64).reshape(-1, 8)
