"""Define the site's own tasks, an instance for every seed; made tasks of the site descend from them."""

import random
from collections.abc import Mapping

from environments.site.world import ROOTS, START, world_of
from schemas.tables.task import TaskEntry
from schemas.world import FieldCheck, Setup, Site

WORDS = ("thanks", "hello", "by post", "no bag", "a gift", "call first", "ring twice", "to the desk")
ENTRIES: Mapping[str, TaskEntry] = {
    ROOTS["open"].task: TaskEntry(instruction='Open the page of "{}".', tags=("site", "navigation"), max_steps=8),
    ROOTS["answer"].task: TaskEntry(
        instruction='Find the {} of "{}" and hand it in as the answer.', tags=("site", "question"), max_steps=8
    ),
    ROOTS["cart"].task: TaskEntry(
        instruction='Have {} of "{}" in the cart and nothing else.', tags=("site", "form"), max_steps=8
    ),
    ROOTS["note"].task: TaskEntry(instruction='Write "{}" as the note.', tags=("site", "form", "typing"), max_steps=6),
}


def instance(template: str, site: Site, seed: int) -> tuple[str, Setup]:
    """Returns the instruction and the setup of a task, which starts one or two clicks from its goal. A policy that also
    changes another field (a cart, a note, an answer) gets no reward, as in made tasks."""
    words, page, wanted = _drawn(template, site, seed)
    initial = {**START, "page": page}
    checks = tuple(
        FieldCheck.model_validate({"field": name, "value": value, "exact": name == "note"})
        for name, value in wanted.items()
    )
    guarded = (*checks, *world_of(site).guards(checks, initial))
    return words, Setup.model_validate({"initial": initial, "checks": guarded})


def _drawn(template: str, site: Site, seed: int) -> tuple[str, str, dict[str, object]]:
    """Draws the instruction, the start page, and the goal values of the fields."""
    chance = random.Random(f"{template} {seed}")
    entity = chance.choice(site.entities)
    linked = {one.key: one for one in site.entities}
    words = ENTRIES[template].instruction
    if template == ROOTS["open"].task:
        while not entity.links:
            entity = chance.choice(site.entities)
        target = linked[chance.choice(sorted(entity.links.values()))]
        return words.format(target.title), entity.key, {"page": target.key}
    if template == ROOTS["answer"].task:
        name = chance.choice(sorted(entity.values))
        wanted = {"answer": str(entity.values[name]), "submitted": True}
        return words.format(name, entity.title), entity.key, wanted
    if template == ROOTS["cart"].task:
        entity, count = chance.choice(site.of_kind(site.goods)), chance.choice((1, 1, 2))
        return words.format(count, entity.title), entity.key, {"cart": {entity.key: count}}
    text = chance.choice(WORDS)
    return words.format(text), "cart", {"note": text}
