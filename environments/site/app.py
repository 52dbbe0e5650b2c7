"""Make a shop's encyclopedia from a seed, with its pages and the effect of clicks and keys for both of its skins.

It links products, their makers and designers, and cities. Names are syllables, so that a model's general knowledge
answers no question about the site. The seed orders lists and rows, so that a task looks different each time and stays
the same.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from schemas.world import Attribute, Entity, Relation, Root, Site, State, StateField, World

TYPES = ("lamp", "chair", "kettle", "clock", "rug", "radio")
_COLOURS = {
    "red": "warm", "orange": "warm", "yellow": "warm", "blue": "cold", "green": "cold", "violet": "cold",
    "white": "pale", "cream": "pale", "silver": "pale",
}  # fmt: skip
_MATERIALS = {
    "brass": "metal", "steel": "metal", "copper": "metal", "oak": "wood", "beech": "wood", "ash": "wood",
    "wool": "cloth", "linen": "cloth", "cotton": "cloth",
}  # fmt: skip
_STYLES = ("plain", "ornate", "rustic", "modern", "playful", "severe")
_RIVERS = ("Osk", "Velm", "Tarn", "Ibra", "Sule", "Dorn", "Wye", "Alt")
_REGIONS = ("north", "south", "east", "west")
_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "st")
_VOWELS, _CODAS = tuple("aeiou"), tuple("nrlsxm")

ATTRIBUTES = (
    Attribute(of="product", name="type", exact="is a {}", listed=True),
    Attribute(of="product", name="colour", exact="is {}", vague="has a {} colour", families=_COLOURS),
    Attribute(of="product", name="material", exact="is made of {}", vague="is made of some {}", families=_MATERIALS),
    Attribute(of="product", name="price", exact="costs {}", vague="costs between {} and {}", width=100),
    Attribute(of="product", name="year", exact="is from {}", vague="is from between {} and {}", width=10),
    Attribute(
        of="maker", name="founding year", exact="was founded in {}", vague="was founded between {} and {}", width=20
    ),
    Attribute(of="maker", name="staff", exact="employs {} people", vague="employs between {} and {} people", width=100),
    Attribute(of="designer", name="birth year", exact="was born in {}", vague="was born between {} and {}", width=20),
    Attribute(of="designer", name="style", exact="works in the {} style"),
    Attribute(
        of="city", name="people", exact="has {} thousand people", vague="has between {} and {} thousand people",
        width=100,
    ),
    Attribute(of="city", name="river", exact="lies on the {}"),
    Attribute(of="city", name="region", exact="lies in the {}"),
)  # fmt: skip
RELATIONS = (
    Relation(of="product", name="maker", to="maker"),
    Relation(of="product", name="designer", to="designer"),
    Relation(of="maker", name="city", to="city"),
    Relation(of="designer", name="city", to="city"),
)
FIELDS = (
    StateField(name="page", kind="page", about="the page that is open"),
    StateField(name="answer", kind="text", about="what the answer box holds"),
    StateField(name="submitted", kind="flag", about="whether the answer was handed in, which ends the task"),
    StateField(name="cart", kind="counts", about="how many of each product are in the cart"),
    StateField(name="note", kind="text", about="what the note in the cart says"),
)
START = {"page": "home", "answer": "", "submitted": False, "cart": {}, "note": ""}
ROOTS = {
    "open": Root(task="open-page", fields=("page",)),
    "answer": Root(task="find-value", fields=("answer", "submitted")),
    "cart": Root(task="fill-cart", fields=("cart",)),
    "note": Root(task="write-note", fields=("note",)),
}


@cache
def site_of(seed: int, size: int) -> Site:
    """Makes the site of a seed, with `size` entities: half of them products, the others in three equal parts."""
    chance = random.Random(f"site {seed}")
    titles = _titles(chance)
    others = size // 6
    cities = [Entity(key=f"city-{at}", kind="city", title=next(titles), values=_city(chance)) for at in range(others)]
    makers = [
        Entity(key=f"maker-{at}", kind="maker", title=f"{next(titles)} Works", values=_maker(chance),
               links={"city": chance.choice(cities).key})
        for at in range(others)
    ]  # fmt: skip
    designers = [
        Entity(key=f"designer-{at}", kind="designer", title=f"{next(titles)} {next(titles)}", values=_designer(chance),
               links={"city": chance.choice(cities).key})
        for at in range(others)
    ]  # fmt: skip
    products = [
        Entity(key=f"product-{at}", kind="product", title=next(titles), values=_product(chance, TYPES[at % len(TYPES)]),
               links={"maker": chance.choice(makers).key, "designer": chance.choice(designers).key})
        for at in range(size - 3 * others)
    ]  # fmt: skip
    entities = (*products, *makers, *designers, *cities)
    return Site(attributes=ATTRIBUTES, relations=RELATIONS, entities=entities, goods="product")


def world_of(site: Site) -> World:
    """Makes the world of a site, from which tasks can be made."""
    return World(fields=FIELDS, start=START, pages=(*ROOMS, "cart"), site=site, roots=ROOTS)


ROOMS = ("home", *(f"list-{name}" for name in (*TYPES, "maker", "designer", "city")))
"""Pages that list other pages."""


def _product(chance: random.Random, kind: str) -> Mapping[str, int | str]:
    return {
        "type": kind,
        "colour": chance.choice(list(_COLOURS)),
        "material": chance.choice(list(_MATERIALS)),
        "price": chance.randrange(20, 900),
        "year": chance.randrange(1920, 2010),
    }


def _maker(chance: random.Random) -> Mapping[str, int | str]:
    return {"founding year": chance.randrange(1860, 1960), "staff": chance.randrange(20, 900)}


def _designer(chance: random.Random) -> Mapping[str, int | str]:
    return {"birth year": chance.randrange(1860, 1960), "style": chance.choice(_STYLES)}


def _city(chance: random.Random) -> Mapping[str, int | str]:
    return {
        "people": chance.randrange(20, 900),
        "river": chance.choice(_RIVERS),
        "region": chance.choice(_REGIONS),
    }


def _titles(chance: random.Random) -> Iterator[str]:
    """Yields distinct names of two syllables."""
    seen: set[str] = set()
    while True:
        parts = [chance.choice(sounds) for sounds in (_ONSETS, _VOWELS, _ONSETS, _VOWELS, _CODAS)]
        if (name := "".join(parts).capitalize()) not in seen:
            seen.add(name)
            yield name


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
