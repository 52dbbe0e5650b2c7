"""Goals: what a made task asks for, as its state maker knows it: the words, and what they change in the state.

Only state makers know goals. A reward maker sees the words alone (`curation.synthesis.reward`).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from curation.synthesis.reference import Condition, Linked, Ref, fits, ref_text
from schemas.world import Entity, Site, State, canonical

NEAR = 2
"""Wrong values that are tried for each goal."""
VERBS = ("cart", "note", "open", "answer")
"""In the order in which they are asked for: the page that is to be open comes after what opens other pages on its way,
and an answer ends the task."""


@dataclass(frozen=True, slots=True)
class MakerGoal:
    """One thing that is asked for."""

    verb: str
    """One of `VERBS`."""
    entity: str = ""
    """The key of the entity that is meant."""
    ref: Ref | None = None
    """How it is referred to."""
    attribute: str = ""
    """Of an answer."""
    count: int = 1
    """Of a cart."""
    text: str = ""
    """Of a note."""


def sentence(site: Site, goal: MakerGoal) -> str:
    """The words."""
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
    """All of them, an answer last."""
    return " ".join(sentence(site, goal) for goal in in_order(goals))


def in_order(goals: Sequence[MakerGoal]) -> tuple[MakerGoal, ...]:
    """Goals in the order in which they are asked for."""
    return tuple(sorted(goals, key=lambda goal: VERBS.index(goal.verb)))


def agree(goals: Sequence[MakerGoal]) -> bool:
    """Whether they can all be had at once: at most one of each verb, and no page to be open where an answer ends it."""
    verbs = [goal.verb for goal in goals]
    return len(set(verbs)) == len(verbs) and not {"open", "answer"} <= set(verbs)


def changes(site: Site, goal: MakerGoal) -> State:
    """What it comes to in the state."""
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
    """The state in which all of them are reached."""
    state = dict(initial)
    for goal in goals:
        state |= changes(site, goal)
    return state


def near_misses(
    site: Site, initial: Mapping[str, Any], goals: Sequence[MakerGoal], chance: random.Random
) -> list[State]:
    """States that are nearly the golden one: each change left out alone, and for each goal what fits nearly as well."""
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
    """Other entities of its kind, those first that meet most of its conditions."""
    conditions = goal.ref.conditions if goal.ref and goal.ref.kind == right.kind else ()
    others = [one for one in site.of_kind(right.kind) if one.key != right.key]
    chance.shuffle(others)
    return sorted(others, key=lambda one: -fits(site, one, conditions))


def entity_of(site: Site, key: str) -> Entity:
    """An entity by its key."""
    return next(one for one in site.entities if one.key == key)


def to_data(goals: Sequence[MakerGoal]) -> list[dict[str, Any]]:
    """Goals as JSON."""
    return [asdict(goal) for goal in goals]


def from_data(data: Sequence[Mapping[str, Any]]) -> tuple[MakerGoal, ...]:
    """Goals from such JSON."""
    return tuple(MakerGoal(**_with(one, ref=_ref(one["ref"]))) for one in data)


def _ref(data: Mapping[str, Any] | None) -> Ref | None:
    if data is None:
        return None
    linked, conditions = data["linked"], tuple(Condition(**one) for one in data["conditions"])
    ends = _ref(linked["ref"]) if linked else None
    link = Linked(linked["relation"], ends) if linked and ends else None
    return Ref(**_with(data, conditions=conditions, of=_ref(data["of"]), linked=link))


def _with(data: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {**data, **changes}
