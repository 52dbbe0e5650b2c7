"""Creates the configured makers of tasks and of rewards, and has the parts that the built-in makers share."""

import random
from collections.abc import Sequence
from typing import Any

from curation.synthesis.goal import MakerGoal, entity_of, golden, in_order, instruction, near_misses
from curation.synthesis.maker import MakerInputs, ProposedTask, RewardMaker, TaskMaker, maker_of, reward_maker_of
from curation.synthesis.reference import Ref
from schemas.config.curating import SynthesisConfig
from schemas.failure import UsageError
from schemas.world import Entity, Site, State

TEXTS = ("thanks", "hello", "by post", "no bag", "a gift", "call first", "ring twice", "to the desk", "leave it")


def proposal(
    maker: TaskMaker[Any],
    material: MakerInputs,
    goals: Sequence[MakerGoal],
    initial: State,
    parents: Sequence[str],
    chance: random.Random,
) -> ProposedTask:
    """Make a proposal for these goals."""
    site, ordered = site_in(material), in_order(goals)
    roots = [material.root(goal.verb) for goal in ordered]
    return ProposedTask(
        maker=maker.name,
        version=maker.version,
        environment=material.environment,
        instruction=instruction(site, ordered),
        initial=initial,
        golden=golden(site, initial, ordered),
        near_misses=tuple(near_misses(site, initial, ordered, chance)),
        parents=tuple(dict.fromkeys([*parents, *roots])),
        tags=("site", maker.name, *(goal.verb for goal in ordered)),
        goals=ordered,
    )


def site_in(material: MakerInputs) -> Site:
    """Return the world's site; makers that need a site only get worlds with one."""
    assert material.world.site is not None
    return material.world.site


def start(material: MakerInputs, page: str, **others: Any) -> State:
    """Return the state in which nothing was done, with a page open."""
    return {**material.world.start, "page": page, **others}


def sampled(verb: str, site: Site, chance: random.Random) -> MakerGoal:
    """Make a goal of this verb about a sampled entity, which is named."""
    entity = chance.choice(site.of_kind(site.goods) if verb in ("cart", "note") else list(site.entities))
    return goal_for(verb, site, entity, Ref(title=entity.title), chance)


def goal_for(verb: str, site: Site, entity: Entity, ref: Ref, chance: random.Random) -> MakerGoal:
    """Make a goal of this verb about an entity."""
    if verb == "note":
        return MakerGoal("note", text=chance.choice(TEXTS))
    if verb == "answer":
        return MakerGoal("answer", entity.key, ref, attribute=chance.choice(asked(entity, ref)))
    return MakerGoal(verb, entity.key, ref, count=chance.choice((1, 2, 3)) if verb == "cart" else 1)


def asked(entity: Entity, ref: Ref) -> list[str]:
    """Return the attributes of an entity that its conditions do not reveal."""
    used = {one.attribute for one in ref.conditions}
    return sorted(set(entity.values) - used)


def near(site: Site, goals: Sequence[MakerGoal], chance: random.Random) -> str:
    """Return a page a click or two away from the first goal.

    It is the cart if only a note is requested. Otherwise, it is a page with a link to the goal's page, or the goal's
    page itself unless the goal is to open it.
    """
    meant = [goal for goal in in_order(goals) if goal.entity]
    if not meant:
        return "cart"
    entity = entity_of(site, meant[0].entity)
    linking = [one.key for one in site.entities if entity.key in one.links.values()]
    linked = chance.choice(linking or sorted(entity.links.values()) or ["home"])
    return linked if meant[0].verb == "open" else chance.choice((linked, entity.key))


REWARD = "reward"
"""Name of the section with the reward maker's own keys."""


def makers_of(config: SynthesisConfig) -> tuple[list[TaskMaker[Any]], RewardMaker[Any]]:
    """Return the makers, in the config's order, and the reward maker.

    Raises:
        UsageError: a maker is unknown or repeated, or an option is unknown or belongs to a maker that is not named.
    """
    for name in config.options.keys() - {*config.makers, REWARD}:
        raise UsageError(
            f"`synthesis.options.{name}`: no maker has this name.",
            f"They are {', '.join(config.makers)}, and `{REWARD}`.",
        )
    if len(set(config.makers)) < len(config.makers):
        raise UsageError("`synthesis.makers` names a maker twice.", "Name each once.")
    makers = [maker_of(name, config.options.get(name, {})) for name in config.makers]
    return makers, reward_maker_of(config.reward, config.options.get(REWARD, {}))
