"""Describes a screen for perception data: elements and their places, in words that the picture supports.

Elements come from a page or from a reader of pixels. A description must stay true when the trainer of the small policy
moves the picture by a few pixels. So a place near the border of two regions has no name. A name that does not fit into
its box, such as the hidden text of an icon, does not count.

The module also measures how far elements read from pixels agree with the page's own list: words and their places.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from schemas.observation import Element

T = TypeVar("T")
MAX_NAME = 40
"""Maximum length of a name, in characters; longer texts are paragraphs."""
LEAST_WIDTH, LINE = 5.0, 12.0
"""Minimum width of a letter and height of a line in pixels for a name that is written inside its element."""
INSIDE = {"button": 1.0, "link": 1.0, "tab": 1.0, "option": 1.0, "text": 0.8}
"""Kinds whose name is written inside, with the minimum width of a letter as a share of `LEAST_WIDTH`; a text's box has
no border."""
FIELDS = ("text field", "password field", "textarea", "select")
"""Kinds in which the name is visible at most while they are empty."""
MARGIN = 0.055
"""Margin as a share of the screen, larger than the trainer's shifts of a picture."""
_SIDES = {"x": ("left", "middle", "right"), "y": ("upper", "middle", "lower")}


@dataclass(frozen=True)
class RecognisedScreen:
    """One screen and its elements."""

    digest: str
    """sha256 of the picture."""
    width: int
    """Width in pixels."""
    height: int
    elements: tuple[Element, ...]
    author: str
    """Source of the elements: `page` or `ocr`."""
    png: bytes = b""
    """PNG of the picture; only marks need it."""

    @cached_property
    def named(self) -> tuple[Element, ...]:
        """Elements with a legible name that no other element has."""
        counts = Counter(element.name.casefold() for element in self.elements)
        return tuple(one for one in self.elements if counts[one.name.casefold()] == 1 and self.legible(one))

    @cached_property
    def known(self) -> tuple[Element, ...]:
        """Elements that words can identify: the elements of `named`, and elements that are the only ones of their
        kind."""
        kinds = Counter(element.kind for element in self.elements)
        named = {id(one) for one in self.named}
        return tuple(
            one for one in self.elements if id(one) in named or (kinds[one.kind] == 1 and one.kind not in VAGUE)
        )

    def legible(self, element: Element) -> bool:
        """Whether an element's name can be read on the screen."""
        name = element.name
        if not 0 < len(name) <= MAX_NAME or element.kind in VAGUE:
            return False
        if element.kind in FIELDS and element.value:
            return any(other.kind == "text" and other.name == name for other in self.elements)
        if element.kind not in INSIDE:
            return True
        left, top, right, bottom = element.box
        lines = max(1.0, (bottom - top) * self.height // LINE)
        fits = (right - left) * self.width * lines >= LEAST_WIDTH * INSIDE[element.kind] * len(name)
        return fits and not any(holds(element, other) for other in self.elements)

    def called(self, element: Element) -> str:
        """Return an element's description, such as `button "ok"`."""
        return f'{element.kind} "{element.name}"' if self.legible(element) else element.kind

    def drawn(self, elements: Sequence[Element], most: int, topic: str) -> list[Element]:
        """Sample at most `most` elements by the screen's content, the interactive ones first."""
        ranked = sorted(elements, key=lambda one: (not one.interactive, self._digest(topic, one.name, *one.box)))
        return ranked[:most]

    def pick(self, wordings: Sequence[str], topic: str) -> str:
        """Choose a wording, always the same for equal screens and topics."""
        return wordings[int(self._digest(topic)[:8], 16) % len(wordings)]

    def turned(self, ways: Sequence[T], topic: str) -> list[T]:
        """Rotate the list to begin with an item that is chosen as `pick` does."""
        begins = int(self._digest(topic)[:8], 16) % max(1, len(ways))
        return [*ways[begins:], *ways[:begins]]

    def _digest(self, *parts: object) -> str:
        return hashlib.sha256("|".join([self.digest, *map(str, parts)]).encode()).hexdigest()


VAGUE = ("shape", "other")
"""Kinds of variable appearance whose name is a title or alternative text, which is not visible."""


@dataclass(frozen=True, slots=True)
class Perceived:
    """One question about a screen, with its answer."""

    question: str
    """Question; `{place}` in it is replaced by `place`, and kept if `place` is None."""
    answer: str
    place: tuple[float, float] | None = None
    """Point in [0, 1] of the screen."""
    picture: bytes | None = None
    """PNG of the picture in question, if it is not the screen itself."""


def holds(outer: Element, inner: Element) -> bool:
    """Whether the outer element only contains the inner element, so that its text equals or includes the inner text."""
    if not inner.name or inner.name not in outer.name:
        return False
    edges = zip(outer.box, inner.box, (1, 1, -1, -1), strict=True)
    within = all(sign * (edge - own) > -1e-6 for own, edge, sign in edges)
    return within and outer.box != inner.box


def at(element: Element) -> str:
    """Return an element's place in words, such as ` in the upper left`; empty if no words are certain."""
    across, down = (_side(place, axis) for place, axis in zip(element.centre, "xy", strict=True))
    if not across or not down:
        return ""
    if down == "middle":
        return " in the middle" if across == "middle" else f" on the {across}"
    if across == "middle":
        return " at the top" if down == "upper" else " at the bottom"
    return f" in the {down} {across}"


def _side(place: float, axis: str) -> str:
    for number, name in enumerate(_SIDES[axis]):
        if number / 3 + MARGIN * (number > 0) <= place <= (number + 1) / 3 - MARGIN * (number < 2):
            return name
    return ""


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
