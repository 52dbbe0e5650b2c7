"""Define the goals of a made task: the words, and the requested changes of the state.

Only state makers use goals. A reward maker only sees the words (`curation.synthesis.maker`).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from curation.synthesis.reference import Ref, fits, ref_text
from schemas.world import Entity, Site, State, canonical

NEAR = 2
"""Number of wrong values tried for each goal."""
VERBS = ("cart", "note", "open", "answer")
"""Verbs in the order of their sentences: the page to open comes after goals that open other pages on their way, and an
answer ends the task."""


@dataclass(frozen=True, slots=True)
class MakerGoal:
    """One goal of a task."""

    verb: str
    """One of `VERBS`."""
    entity: str = ""
    """Key of the target entity."""
    ref: Ref | None = None
    """Reference to it."""
    attribute: str = ""
    """Attribute to answer with."""
    count: int = 1
    """Number of items in the cart."""
    text: str = ""
    """Text of the note."""


_GOALS = TypeAdapter(tuple[MakerGoal, ...])


def sentence(site: Site, goal: MakerGoal) -> str:
    """Return a goal's words."""
    named = ref_text(site, goal.ref) if goal.ref else ""
    match goal.verb:
        case "open":
            return f"Open the page of {named}."
        case "answer":
            return f"Find the {goal.attribute} of {named} and hand it in as the answer."
        case "cart":
            return f"Have {goal.count} of {named} in the cart and nothing else."
        case _:
            return f'Write "{goal.text}" as the note.'


def instruction(site: Site, goals: Sequence[MakerGoal]) -> str:
    """Return the words of all goals, an answer last."""
    return " ".join(sentence(site, goal) for goal in in_order(goals))


def in_order(goals: Sequence[MakerGoal]) -> tuple[MakerGoal, ...]:
    """Sort goals by the order of their sentences."""
    return tuple(sorted(goals, key=lambda goal: VERBS.index(goal.verb)))


def agree(goals: Sequence[MakerGoal]) -> bool:
    """Whether all goals can be reached together: at most one of each verb, and not both an open page and an answer."""
    verbs = [goal.verb for goal in goals]
    return len(set(verbs)) == len(verbs) and not {"open", "answer"} <= set(verbs)


def changes(site: Site, goal: MakerGoal) -> State:
    """Return a goal's changes of the state."""
    match goal.verb:
        case "open":
            return {"page": goal.entity}
        case "answer":
            return {"answer": str(entity_of(site, goal.entity).values[goal.attribute]), "submitted": True}
        case "cart":
            return {"cart": {goal.entity: goal.count}}
        case _:
            return {"note": goal.text}


def golden(site: Site, initial: Mapping[str, Any], goals: Sequence[MakerGoal]) -> State:
    """Return the state in which all goals are reached."""
    state = dict(initial)
    for goal in goals:
        state |= changes(site, goal)
    return state


def near_misses(
    site: Site, initial: Mapping[str, Any], goals: Sequence[MakerGoal], chance: random.Random
) -> list[State]:
    """Return states near the golden one: one without each change, and for each goal, states with similar wrong
    values."""
    whole, found = golden(site, initial, goals), list[State]()
    for goal in goals:
        found += [{**whole, field: initial[field]} for field in changes(site, goal)]
        found += [{**whole, **wrong} for wrong in _wrong(site, goal, chance)]
    kept = {canonical(one): one for one in found if one != whole}
    return list(kept.values())


def _wrong(site: Site, goal: MakerGoal, chance: random.Random) -> list[State]:
    if goal.verb == "note":
        return [{"note": goal.text + "s"}, {"note": goal.text[:-1]}]
    right = entity_of(site, goal.entity)
    if goal.verb == "cart":
        others = _alike(site, goal, right, chance)[:NEAR]
        more = {goal.entity: goal.count, others[0].key: 1}
        counts = [{goal.entity: goal.count + 1}, more, *({one.key: goal.count} for one in others)]
        return [{"cart": one} for one in counts]
    others = _alike(site, goal, right, chance)
    if goal.verb == "open":
        return [{"page": one.key} for one in others[:NEAR]]
    values = [str(one.values[goal.attribute]) for one in others if goal.attribute in one.values]
    wrong = [value for value in dict.fromkeys(values) if value != str(right.values[goal.attribute])]
    return [{"answer": value, "submitted": True} for value in wrong[:NEAR]]


def _alike(site: Site, goal: MakerGoal, right: Entity, chance: random.Random) -> list[Entity]:
    """Return other entities of the kind, sorted by the number of conditions that they meet."""
    conditions = goal.ref.conditions if goal.ref and goal.ref.kind == right.kind else ()
    others = [one for one in site.of_kind(right.kind) if one.key != right.key]
    chance.shuffle(others)
    return sorted(others, key=lambda one: -fits(site, one, conditions))


def entity_of(site: Site, key: str) -> Entity:
    """Return an entity by its key."""
    return next(one for one in site.entities if one.key == key)


def to_data(goals: Sequence[MakerGoal]) -> list[dict[str, Any]]:
    """Convert goals to JSON."""
    return [asdict(goal) for goal in goals]


def from_data(data: Sequence[Mapping[str, Any]]) -> tuple[MakerGoal, ...]:
    """Parse goals from such JSON."""
    return _GOALS.validate_python(data)
