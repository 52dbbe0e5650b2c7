"""Parses sentences by the grammar of the built-in makers, without the contents of any page.

The reader resolves the parsed sentences on every page, and the player searches for their targets page by page. The
state makers do not use this code, so that errors of either are detected.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from curation.synthesis.maker import Unreadable
from schemas.world import Attribute, Site

_SENTENCES = {
    "open": re.compile(r"Open the page of "),
    "answer": re.compile(r"Find the "),
    "cart": re.compile(r"Have (\d+) of "),
    "note": re.compile(r'Write "([^"]+)" as the note\.'),
}


@dataclass(frozen=True, slots=True)
class Criterion:
    """A condition on one attribute."""

    attribute: str
    holds: Callable[[int | str], bool]

    def met(self, values: Mapping[str, int | str]) -> bool:
        """Whether an entity with these values meets the condition."""
        return self.attribute in values and self.holds(values[self.attribute])


@dataclass(frozen=True, slots=True)
class Meant:
    """A reference in a sentence: a title; a kind with tests and a link; or the target of another reference's
    relation."""

    text: str
    """The words."""
    title: str = ""
    kind: str = ""
    tests: tuple[Criterion, ...] = ()
    relation: str = ""
    """Relation of the last condition, with the target `end`; or the relation that starts from `of`."""
    end: "Meant | None" = None
    of: "Meant | None" = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One sentence."""

    verb: str
    """`open`, `answer`, `cart` or `note`."""
    meant: Meant | None = None
    attribute: str = ""
    """Attribute of an answer."""
    count: int = 0
    """Number of items in a cart."""
    text: str = ""
    """Text of a note."""


def asks(site: Site, instruction: str) -> tuple[Ask, ...]:
    """Parse the sentences of an instruction in their order.

    Args:
        site: the site, of which only attributes are read, not entities.
        instruction: the words.

    Raises:
        Unreadable: the grammar does not have a sentence.
    """
    return _Reading(site, instruction).asks()


class _Reading:
    """Parser of one instruction, from left to right."""

    def __init__(self, site: Site, text: str) -> None:
        self._attributes, self._text, self._at = site.attributes, text, 0

    def asks(self) -> tuple[Ask, ...]:
        found: list[Ask] = []
        while self._at < len(self._text):
            found.append(self._sentence())
            self._took(r" ?")
        return tuple(found)

    def _sentence(self) -> Ask:
        for verb, pattern in _SENTENCES.items():
            if match := pattern.match(self._text, self._at):
                self._at = match.end()
                return self._rest(verb, match)
        raise Unreadable(f"no sentence that is known begins at {self._here()!r}")

    def _rest(self, verb: str, match: re.Match[str]) -> Ask:
        if verb == "note":
            return Ask("note", text=match[1])
        if verb == "answer":
            names = sorted({one.name for one in self._attributes}, key=len, reverse=True)
            name = self._need(f"({'|'.join(map(re.escape, names))}) of ")[1]
            meant = self._meant()
            self._need(r" and hand it in as the answer\.")
            return Ask("answer", meant, attribute=name)
        meant = self._meant()
        if verb == "open":
            self._need(r"\.")
            return Ask("open", meant)
        self._need(r" in the cart and nothing else\.")
        return Ask("cart", meant, count=int(match[1]))

    def _meant(self) -> Meant:
        begun = self._at
        if match := self._took(r'"([^"]+)"'):
            return Meant(match[0], title=match[1])
        match = self._need(r"the (\w+) (of|that|whose) ")
        if match[2] == "of":
            of = self._meant()
            return Meant(self._text[begun : self._at], relation=match[1], of=of)
        tests, linked = list[Criterion](), match[2] == "whose"
        while not linked:
            tests.append(self._condition(match[1]))
            linked = bool(self._took(r" and whose "))
            if not linked and not self._continues(match[1]):
                return Meant(self._text[begun : self._at], kind=match[1], tests=tuple(tests))
        relation = self._need(r"(\w+) is ")[1]
        end = self._meant()
        return Meant(self._text[begun : self._at], kind=match[1], tests=tuple(tests), relation=relation, end=end)

    def _continues(self, kind: str) -> bool:
        """Whether another condition follows; an `and` that begins something else is not consumed."""
        back = self._at
        if self._took(r" and "):
            begun = self._at
            try:
                self._condition(kind)
            except Unreadable:
                self._at = back
                return False
            self._at = begun
            return True
        return False

    def _condition(self, kind: str) -> Criterion:
        """Parse the longest condition on entities of a kind that begins at the current position."""
        best: tuple[int, Criterion] | None = None
        for attribute in self._attributes:
            for end, test in self._readings(attribute) if attribute.of == kind else ():
                if best is None or end > best[0]:
                    best = end, test
        if best is None:
            raise Unreadable(f"{self._here()!r} is not a condition on a {kind}")
        self._at = best[0]
        return best[1]

    def _readings(self, attribute: Attribute) -> list[tuple[int, Criterion]]:
        found = list[tuple[int, Criterion]]()
        for template in filter(None, (attribute.exact, attribute.vague)):
            pattern = re.escape(template).replace(r"\{\}", r"(\w+)")
            match = re.compile(pattern + r"\b").match(self._text, self._at)
            if match and (holds := _test(attribute, template == attribute.vague, match.groups())):
                found.append((match.end(), Criterion(attribute.name, holds)))
        return found

    def _took(self, pattern: str) -> re.Match[str] | None:
        match = re.compile(pattern).match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match

    def _need(self, pattern: str) -> re.Match[str]:
        if match := self._took(pattern):
            return match
        raise Unreadable(f"{self._here()!r} cannot be read")

    def _here(self) -> str:
        return self._text[self._at : self._at + 40]


def _test(attribute: Attribute, vague: bool, groups: tuple[str, ...]) -> Callable[[int | str], bool] | None:
    """Return a test of a value for a condition with these words; None if the words do not fit this attribute."""
    numeric = attribute.width > 0
    if numeric and all(one.isdigit() for one in groups):
        low, high = int(groups[0]), int(groups[-1])
        return lambda value: low <= int(value) <= high
    if numeric or (vague and groups[0] not in attribute.families.values()):
        return None
    if vague:
        return lambda value: attribute.families.get(str(value)) == groups[0]
    if attribute.families and groups[0] not in attribute.families:
        return None
    return lambda value: value == groups[0]
