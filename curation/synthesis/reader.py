"""A reward maker that reads: the words by their grammar, and what they mean by looking at every page of the site.

It shares no code with the state makers but the site's own vocabulary, so that an error of theirs shows.
"""

import re
from collections.abc import Callable

from pydantic import JsonValue

from curation.synthesis.reward import RewardMaker, Unreadable
from schemas.config.section import Section
from schemas.world import Attribute, Check, Entity, Site, World

_SENTENCES = {
    "open": re.compile(r"Open the page of "),
    "answer": re.compile(r"Find the "),
    "cart": re.compile(r"Have (\d+) of "),
    "note": re.compile(r'Write "([^"]+)" as the note\.'),
}
_TURNS = re.compile(r"Do (\d) tasks one after the other: ")


class Reader(RewardMaker[Section]):
    """Reads the sentences that our own makers write; whoever writes otherwise needs another reward maker."""

    version = "3"

    def checks(self, instruction: str, world: World) -> tuple[Check, ...]:
        """One or two checks for each sentence; of tasks one after the other, which they are and that all are done."""
        turns = _TURNS.match(instruction)
        if turns and world.parts:
            names = _parts(instruction[turns.end() :], int(turns[1]), world)
            done = list[JsonValue]([1.0] * len(names))
            return Check(field="parts", value=" ".join(names)), Check(field="rewards", value=done)
        if world.site is None:
            raise Unreadable("there are no pages, and the words name no tasks one after the other")
        return _Reading(world.site, instruction).checks()


def _parts(words: str, count: int, world: World) -> list[str]:
    """The names of the tasks that these words ask for, one after the other."""
    found = re.fullmatch(" ".join(rf"\({number}\) (.+)" for number in range(1, count + 1)), words, re.DOTALL)
    if found is None:
        raise Unreadable(f"{words[:80]!r} are not {count} tasks")
    fitting = [(text, [name for name, own in world.parts.items() if own == text]) for text in found.groups()]
    for text, names in fitting:
        if len(names) != 1:
            raise Unreadable(f"{text[:80]!r} fits {len(names)} tasks, not one")
    return [names[0] for _, names in fitting]


class _Reading:
    """One instruction, read from left to right."""

    def __init__(self, site: Site, text: str) -> None:
        self._site, self._text, self._at = site, text, 0
        self._by_key = {one.key: one for one in site.entities}

    def checks(self) -> tuple[Check, ...]:
        found: dict[str, Check] = {}
        while self._at < len(self._text):
            for check in self._sentence():
                if check.field in found:
                    raise Unreadable(f"the words ask for two values of {check.field}")
                found[check.field] = check
            self._took(r" ?")
        return tuple(found.values())

    def _sentence(self) -> list[Check]:
        for verb, pattern in _SENTENCES.items():
            if match := pattern.match(self._text, self._at):
                self._at = match.end()
                return self._rest(verb, match)
        raise Unreadable(f"no sentence that is known begins at {self._here()!r}")

    def _rest(self, verb: str, match: re.Match[str]) -> list[Check]:
        if verb == "note":
            return [Check(field="note", value=match[1], exact=True)]
        if verb == "answer":
            names = sorted({one.name for one in self._site.attributes}, key=len, reverse=True)
            name = self._need(f"({'|'.join(map(re.escape, names))}) of ")[1]
            entity = self._one()
            self._need(r" and hand it in as the answer\.")
            if name not in entity.values:
                raise Unreadable(f"{entity.title} has no {name}")
            return [Check(field="answer", value=str(entity.values[name])), Check(field="submitted", value=True)]
        entity = self._one()
        if verb == "open":
            self._need(r"\.")
            return [Check(field="page", value=entity.key)]
        self._need(r" in the cart and nothing else\.")
        return [Check(field="cart", value={entity.key: int(match[1])})]

    def _one(self) -> Entity:
        """The one entity that is referred to here."""
        begun, found = self._at, self._entities()
        if len(found) != 1:
            raise Unreadable(f"{self._text[begun : self._at]!r} fits {len(found)} pages, not one")
        return found[0]

    def _entities(self) -> list[Entity]:
        if match := self._took(r'"([^"]+)"'):
            return [one for one in self._site.entities if one.title == match[1]]
        match = self._need(r"the (\w+) (of|that|whose) ")
        if match[2] == "of":
            targets = {one.links[match[1]] for one in self._entities() if match[1] in one.links}
            return [one for one in self._site.entities if one.key in targets]
        found = [one for one in self._site.entities if one.kind == match[1]]
        linked = match[2] == "whose"
        while not linked:
            holds = self._condition(match[1])
            found = [one for one in found if holds(one)]
            linked = bool(self._took(r" and whose "))
            if not linked and not self._continues(match[1]):
                return found
        relation = self._need(r"(\w+) is ")[1]
        ends = {one.key for one in self._entities()}
        return [one for one in found if one.links.get(relation) in ends]

    def _continues(self, kind: str) -> bool:
        """Whether another condition follows; an `and` that begins something else is left alone."""
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

    def _condition(self, kind: str) -> Callable[[Entity], bool]:
        """The longest condition on entities of a kind that begins here."""
        best: tuple[int, Callable[[Entity], bool]] | None = None
        for attribute in self._site.attributes:
            for end, holds in self._readings(attribute) if attribute.of == kind else ():
                if best is None or end > best[0]:
                    best = end, holds
        if best is None:
            raise Unreadable(f"{self._here()!r} is no condition on a {kind}")
        self._at = best[0]
        return best[1]

    def _readings(self, attribute: Attribute) -> list[tuple[int, Callable[[Entity], bool]]]:
        name, found = attribute.name, list[tuple[int, Callable[[Entity], bool]]]()
        for template in filter(None, (attribute.exact, attribute.vague)):
            pattern = re.escape(template).replace(r"\{\}", r"(\w+)")
            match = re.compile(pattern + r"\b").match(self._text, self._at)
            if match and (holds := _test(attribute, name, template == attribute.vague, match.groups())):
                found.append((match.end(), holds))
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


def _test(attribute: Attribute, name: str, vague: bool, groups: tuple[str, ...]) -> Callable[[Entity], bool] | None:
    """What a condition with these words says of an entity; None where the words are none of this attribute."""
    numeric = attribute.width > 0
    if numeric and all(one.isdigit() for one in groups):
        low, high = int(groups[0]), int(groups[-1])
        return lambda one: low <= int(one.values[name]) <= high
    if numeric or (vague and groups[0] not in attribute.families.values()):
        return None
    if vague:
        return lambda one: attribute.families.get(str(one.values[name])) == groups[0]
    if attribute.families and groups[0] not in attribute.families:
        return None
    return lambda one: one.values[name] == groups[0]
