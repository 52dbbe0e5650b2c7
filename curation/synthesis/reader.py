"""Makes rewards by parsing the words by their grammar, and resolving references on every page of the site.

It shares only the site's vocabulary with the state makers, and no code, so that errors of either are detected.
"""

import re
from collections.abc import Iterable

from pydantic import JsonValue

from curation.synthesis.maker import RewardMaker, Unreadable
from curation.synthesis.words import Ask, Meant, asks
from schemas.config.section import Section
from schemas.world import Entity, FieldCheck, Site, World

_TURNS = re.compile(r"Do (\d) tasks one after the other: ")


class SentenceReader(RewardMaker[Section]):
    """Parses the sentences of the built-in makers; other sentences need another reward maker."""

    version = "4"

    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        """Return one or two checks for each sentence; for tasks in turn, one check of their names and one of all
        rewards."""
        turns = _TURNS.match(instruction)
        if turns and world.parts:
            names = _parts(instruction[turns.end() :], int(turns[1]), world)
            done = list[JsonValue]([1.0] * len(names))
            return FieldCheck(field="parts", value=" ".join(names)), FieldCheck(field="rewards", value=done)
        if world.site is None:
            raise Unreadable("there are no pages, and the words name no tasks one after the other")
        return _looked_up(world.site, asks(world.site, instruction))


def _parts(words: str, count: int, world: World) -> list[str]:
    """Return the names of the tasks that these words request, in turn."""
    found = re.fullmatch(" ".join(rf"\({number}\) (.+)" for number in range(1, count + 1)), words, re.DOTALL)
    if found is None:
        raise Unreadable(f"{words[:80]!r} are not {count} tasks")
    fitting = [(text, [name for name, own in world.parts.items() if own == text]) for text in found.groups()]
    for text, names in fitting:
        if len(names) != 1:
            raise Unreadable(f"{text[:80]!r} fits {len(names)} tasks, not one")
    return [names[0] for _, names in fitting]


def _looked_up(site: Site, sentences: Iterable[Ask]) -> tuple[FieldCheck, ...]:
    found: dict[str, FieldCheck] = {}
    for ask in sentences:
        for check in _checks(site, ask):
            if check.field in found:
                raise Unreadable(f"the words ask for two values of {check.field}")
            found[check.field] = check
    return tuple(found.values())


def _checks(site: Site, ask: Ask) -> list[FieldCheck]:
    if ask.meant is None:
        return [FieldCheck(field="note", value=ask.text, exact=True)]
    fitting = _entities(site, ask.meant)
    if len(fitting) != 1:
        raise Unreadable(f"{ask.meant.text!r} fits {len(fitting)} pages, not one")
    (entity,) = fitting
    if ask.verb == "open":
        return [FieldCheck(field="page", value=entity.key)]
    if ask.verb == "cart":
        return [FieldCheck(field="cart", value={entity.key: ask.count})]
    if ask.attribute not in entity.values:
        raise Unreadable(f"{entity.title} has no {ask.attribute}")
    value = str(entity.values[ask.attribute])
    return [FieldCheck(field="answer", value=value), FieldCheck(field="submitted", value=True)]


def _entities(site: Site, meant: Meant) -> list[Entity]:
    """Return every entity that fits a reference, in the site's order."""
    if meant.title:
        return [one for one in site.entities if one.title == meant.title]
    if meant.of is not None:
        targets = {one.links[meant.relation] for one in _entities(site, meant.of) if meant.relation in one.links}
        return [one for one in site.entities if one.key in targets]
    found = [one for one in site.of_kind(meant.kind) if all(test.met(one.values) for test in meant.tests)]
    if meant.end is None:
        return found
    ends = {one.key for one in _entities(site, meant.end)}
    return [one for one in found if one.links.get(meant.relation) in ends]
