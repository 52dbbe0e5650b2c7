"""Implement the site's pages and the effect of clicks and keys for both of its skins.

The seed orders lists and rows, so that a task looks different each time and stays the same.
"""

import random
from dataclasses import dataclass
from typing import Literal

from environments.site.world import TYPES
from schemas.world import Entity, Site, State

Do = tuple[str, ...]
"""Effect of a click: `go PAGE`, `input FIELD TEXT`, `use TEXT`, `add KEY`, `less KEY`, `hand in`."""
BACKLINKS = 6
MOST_IN_TWO = 26
"""Maximum links of a list with two per row; a longer list has three per row, so that it fits one screen."""
PEOPLE = {"maker": "Makers", "designer": "Designers", "city": "Cities"}
"""Names of the lists of items other than products, by kind."""


@dataclass(frozen=True, slots=True)
class Widget:
    """An item on a page."""

    kind: Literal["heading", "text", "link", "button", "text field"]
    name: str
    do: Do = ()
    """The effect of a click; for a field, the target of its text."""
    value: str = ""


Rows = list[list[Widget]]


def changed(state: State, do: Do) -> State:
    """Returns the state after a click's effect; after the answer was handed in, nothing changes."""
    if state["submitted"]:
        return state
    match do:
        case ("go", page):
            return {**state, "page": page}
        case ("input", field, text):
            return {**state, field: text[:200]}
        case ("use", text):
            return {**state, "answer": text}
        case ("add", key):
            return {**state, "cart": {**state["cart"], key: min(99, state["cart"].get(key, 0) + 1)}}
        case ("less", key):
            left = {name: count - (name == key) for name, count in state["cart"].items()}
            return {**state, "cart": {name: count for name, count in left.items() if count}}
        case ("hand in",):
            return {**state, "submitted": True}
        case _:
            raise ValueError(f"nothing on the site does {do!r}")


def visible_rows(site: Site, state: State, seed: int) -> Rows:
    """Returns the content of the screen, row by row."""
    chance = random.Random(f"{seed} {state['page']}")
    entities = {one.key: one for one in site.entities}
    page = str(state["page"])
    if page in entities:
        body = _entity(site, entities, entities[page], chance)
    elif page == "cart":
        body = _cart(entities, state)
    else:
        body = _list(site, page, chance)
    count = sum(state["cart"].values())
    menu = [Widget("link", "Home", ("go", "home")), Widget("link", f"Cart ({count})", ("go", "cart"))]
    answer = [
        Widget("text", "Answer"),
        Widget("text field", "Answer", ("input", "answer"), str(state["answer"])),
        Widget("button", "Hand in", ("hand in",)),
    ]
    return [menu, *body, answer]


def _list(site: Site, page: str, chance: random.Random) -> Rows:
    if page == "home":
        links = [Widget("link", f"{name}s", ("go", f"list-{name}")) for name in TYPES]
        links += [Widget("link", name, ("go", f"list-{kind}")) for kind, name in PEOPLE.items()]
        chance.shuffle(links)
        return [[Widget("heading", "Everything there is")], *([link] for link in links)]
    kind = page.removeprefix("list-")
    found = [one for one in site.entities if kind in (one.kind, one.values.get("type"))]
    chance.shuffle(found)
    links = [_link(one) for one in found]
    wide = 2 if len(links) <= MOST_IN_TWO else 3
    rows = [links[at : at + wide] for at in range(0, len(links), wide)]
    return [[Widget("heading", PEOPLE.get(kind, f"{kind}s"))], *rows]


def _entity(site: Site, entities: dict[str, Entity], one: Entity, chance: random.Random) -> Rows:
    values = [
        [Widget("text", f"{name}: {value}"), Widget("button", f"Use {value}", ("use", str(value)))]
        for name, value in one.values.items()
    ]
    links = [[Widget("text", f"{name}:"), _link(entities[key])] for name, key in one.links.items()]
    chance.shuffle(values)
    chance.shuffle(links)
    heading = [Widget("heading", one.title), Widget("text", f"({one.values.get('type', one.kind)})")]
    if one.kind == site.goods:
        heading.append(Widget("button", "Add to cart", ("add", one.key)))
    back = [_link(other) for other in site.entities if one.key in other.links.values()]
    chance.shuffle(back)
    back = back[:BACKLINKS]
    seen = [[Widget("text", "See also:")]] if back else []
    return [heading, *values, *links, *seen, *(back[at : at + 2] for at in range(0, len(back), 2))]


def _cart(entities: dict[str, Entity], state: State) -> Rows:
    items = [
        [
            Widget("text", f"{count} x"),
            _link(entities[key]),
            Widget("button", "More", ("add", key)),
            Widget("button", "Less", ("less", key)),
        ]
        for key, count in state["cart"].items()
    ]
    note = [Widget("text", "Note"), Widget("text field", "Note", ("input", "note"), str(state["note"]))]
    return [[Widget("heading", "Cart")], *items, note]


def _link(one: Entity) -> Widget:
    return Widget("link", one.title, ("go", one.key))
