"""Measure the agreement of elements read from pixels with the page's own list: words and their places."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from curation.perception.screen import RecognisedScreen
from schemas.observation import Element

NEAR = 0.03
"""Maximum distance of a word from the box of its element, as a share of the screen."""
CUT = 80
"""Number of characters at which pages cut an element's text, so that the end of a longer text is unknown."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class WordRecall:
    """Counts of found and missed words, over any number of screens."""

    there: int = 0
    """Number of words of names that the page lists as visible."""
    found: int = 0
    """Number of these words that were read in a box at their place."""
    read: int = 0
    """Number of words that were read at places where the page lists texts."""
    right: int = 0
    """Number of these words that belong to a name at their place."""

    def __add__(self, other: "WordRecall") -> "WordRecall":
        """Add two counts."""
        sums = ((getattr(self, name) + getattr(other, name)) for name in ("there", "found", "read", "right"))
        return WordRecall(*sums)

    @property
    def recall(self) -> float:
        """Share of the page's words that were read at their place."""
        return self.found / max(1, self.there)

    @property
    def precision(self) -> float:
        """Share of the read words that the page has at their place."""
        return self.right / max(1, self.read)


def agreement(screen: RecognisedScreen, lines: Sequence[Element]) -> WordRecall:
    """Count one screen's words: words of legible names, and lines within an element whose whole text is known."""
    known = [one for one in screen.elements if screen.legible(one)]
    there = [(word, one) for one in known for word in words(one.name)]
    held = [Element(one.value, one.kind, one.box, True) for one in screen.elements if one.value]
    texts = [*(one for one in screen.elements if 0 < len(one.name) < CUT), *held]
    read = [(word, line) for line in lines for word in words(line.name) if _within_any(line, texts)]
    found = sum(any(word in words(line.name) and _near(line, one) for line in lines) for word, one in there)
    right = sum(any(word in words(one.name) and _near(line, one) for one in texts) for word, line in read)
    return WordRecall(len(there), found, len(read), right)


def words(text: str) -> Counter[str]:
    """Count the words of a text, in lower case."""
    return Counter(_WORD.findall(text.casefold()))


def _near(line: Element, element: Element) -> bool:
    """Whether the two boxes touch within `NEAR`."""
    (a, b, c, d), (left, top, right, bottom) = line.box, element.box
    return a <= right + NEAR and left <= c + NEAR and b <= bottom + NEAR and top <= d + NEAR


def _within_any(line: Element, elements: Sequence[Element]) -> bool:
    x, y = line.centre
    return any(one.box[0] <= x <= one.box[2] and one.box[1] <= y <= one.box[3] for one in elements)
