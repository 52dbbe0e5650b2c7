"""Define references to an entity of a site: by name, by properties, or by a link to it.

A description is a kind and conditions, each exact or vague. It is resolved by checking every entity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.world import Attribute, Entity, Site


@dataclass(frozen=True, slots=True)
class Condition:
    """One attribute of an entity: a word (or its family), or a number in [low, high]."""

    attribute: str
    word: str = ""
    """The value, or with `vague` its family."""
    low: int = 0
    high: int = 0
    vague: bool = False


@dataclass(frozen=True, slots=True)
class Linked:
    """The last condition of a description: the target of a relation."""

    relation: str
    ref: "Ref"


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference: a name, or a description, or the target of `relation` from another reference."""

    title: str = ""
    kind: str = ""
    conditions: tuple[Condition, ...] = ()
    linked: Linked | None = None
    relation: str = ""
    of: "Ref | None" = None


def meant(site: Site, ref: Ref) -> list[Entity]:
    """Return every entity that a reference fits, in the site's order."""
    by_key = {one.key: one for one in site.entities}
    if ref.title:
        return [one for one in site.entities if one.title == ref.title]
    if ref.of is not None:
        reached = [one.links.get(ref.relation) for one in meant(site, ref.of)]
        return [by_key[key] for key in dict.fromkeys(reached) if key is not None]
    ends = {one.key for one in meant(site, ref.linked.ref)} if ref.linked else set[str]()
    return [
        one
        for one in site.of_kind(ref.kind)
        if all(holds(site, one, condition) for condition in ref.conditions)
        and (ref.linked is None or one.links.get(ref.linked.relation) in ends)
    ]


def holds(site: Site, entity: Entity, condition: Condition) -> bool:
    """Whether a condition holds for an entity."""
    value = entity.values.get(condition.attribute)
    if isinstance(value, int):
        return condition.low <= value <= condition.high
    if value is None or not condition.vague:
        return value == condition.word
    return attribute_of(site, entity.kind, condition.attribute).families.get(value) == condition.word


def attribute_of(site: Site, kind: str, name: str) -> Attribute:
    """Return an attribute by its name."""
    return next(one for one in site.about(kind) if one.name == name)


def exactly(site: Site, entity: Entity, name: str) -> Condition:
    """Return the condition that an attribute has exactly this entity's value."""
    value = entity.values[name]
    return Condition(name, low=value, high=value) if isinstance(value, int) else Condition(name, word=value)


def vaguely(site: Site, entity: Entity, name: str) -> Condition | None:
    """Return the vaguer form of the exact condition, a number's range or a word's family; None if there is none."""
    value, attribute = entity.values[name], attribute_of(site, entity.kind, name)
    if not attribute.vague:
        return None
    if isinstance(value, int):
        low = value - value % attribute.width
        return Condition(name, low=low, high=low + attribute.width - 1, vague=True)
    return Condition(name, word=attribute.families[value], vague=True)


def condition_text(site: Site, kind: str, condition: Condition) -> str:
    """Format a condition in words: `costs between 200 and 299`."""
    attribute = attribute_of(site, kind, condition.attribute)
    template = attribute.vague if condition.vague else attribute.exact
    return template.format(*([condition.word] if condition.word else [condition.low, condition.high]))


def ref_text(site: Site, ref: Ref) -> str:
    """Format a reference: `the product that is red and whose maker is the maker that employs 20 people`."""
    if ref.title:
        return f'"{ref.title}"'
    if ref.of is not None:
        return f"the {ref.relation} of {ref_text(site, ref.of)}"
    conditions = " and ".join(condition_text(site, ref.kind, one) for one in ref.conditions)
    linked = f"whose {ref.linked.relation} is {ref_text(site, ref.linked.ref)}" if ref.linked else ""
    that = f"that {conditions}" if conditions else ""
    return f"the {ref.kind} {' and '.join(part for part in (that, linked) if part)}"


def unique(site: Site, ref: Ref) -> bool:
    """Whether a reference fits exactly one entity."""
    return len(meant(site, ref)) == 1


def fits(site: Site, entity: Entity, conditions: Sequence[Condition]) -> int:
    """Return how many of these conditions hold for an entity; an entity that meets many is similar to the target."""
    return sum(holds(site, entity, one) for one in conditions)
