"""Multi-condition obfuscation (UI-TARS-2, arXiv 2509.02544): ask for an entity by its properties, not by its name.

Each attribute is scored for its distinctiveness in bits: log2 of the number of entities of the kind, divided by the
number with the same value. Attributes that reveal too much are dropped, and the others are made vaguer. The maker keeps
the fewest conditions that identify the entity on the whole site.

Multi-hop chains embed each hop's answer in the next question. Forwards, a question asks for the target of links: `the
city of the maker of the product that ...`. Backwards, each linked entity is described instead of named: `the product
whose maker is the maker whose city is the city that ...`.

Harder forms of a task have a more distant start, a target by description, or distractors in the cart.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from curation.synthesis.goal import MakerGoal, entity_of
from curation.synthesis.maker import MakerInputs, ProposedTask, TaskMaker, drawn
from curation.synthesis.making import asked, goal_for, proposal, sampled, site_in, start
from curation.synthesis.reference import Condition, Linked, Ref, attribute_of, exactly, meant, unique, vaguely
from curation.synthesis.vary import verbs_of
from schemas.config.section import Count, Section, Share
from schemas.world import Entity, Site, State

MOST_TRIED = 40
"""Number of consecutive entities without a unique description after which the proposals end."""


class ObfuscateOptions(Section):
    """Options in `synthesis.options.obfuscate`, and in those of `chain` and `harden`."""

    conditions: Count = 3
    """Maximum number of conditions."""
    revealing: Share = 0.9
    """An attribute is dropped if its value has more than this share of the information that identifies an entity."""


class Obfuscate(TaskMaker[ObfuscateOptions]):
    """Makes tasks to open, answer and fill the cart by description."""

    version = "2"
    section = ObfuscateOptions

    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Propose an entity, a description of it, and a goal about it, from the page that lists everything."""
        site, failed = site_in(material), 0
        while failed < MOST_TRIED:
            entity = chance.choice(site.entities)
            ref = described(site, entity, self.options, chance)
            verb = chance.choice(("open", "answer", "cart") if entity.kind == site.goods else ("open", "answer"))
            if ref is None or (verb == "answer" and not asked(entity, ref)):
                failed += 1
                continue
            failed = 0
            goal = goal_for(verb, site, entity, ref, chance)
            yield proposal(self, material, [goal], start(material, "home"), (), chance)


def described(
    site: Site, entity: Entity, options: ObfuscateOptions, chance: random.Random, linked: Linked | None = None
) -> Ref | None:
    """Return the shortest description that only this entity fits; None if a few conditions cannot identify it.

    Among equally short descriptions, descriptions with a condition that a page lists are preferred, since their search
    is shorter.

    Args:
        site: the site with all entities.
        entity: the entity to describe.
        options: maximum number of conditions, and the limit of revealing attributes.
        chance: order in which equally good descriptions are tried.
        linked: a final condition on the target of a link.
    """
    usable = [
        vaguely(site, entity, name) or exactly(site, entity, name)
        for name in sorted(entity.values)
        if distinctiveness(site, entity, name) < options.revealing
    ]
    chance.shuffle(usable)
    least = 0 if linked else 1
    for count in range(least, options.conditions + 1):
        for chosen in sorted(combinations(usable, count), key=lambda chosen: not _narrows(site, entity, chosen)):
            ref = Ref(kind=entity.kind, conditions=chosen, linked=linked)
            if unique(site, ref) and not _idle(site, entity, chosen, linked):
                return ref
    return None


def distinctiveness(site: Site, entity: Entity, name: str) -> float:
    """Return the information of an attribute in its worded form, in [0, 1]: 1 identifies the entity in its kind."""
    every = len(site.of_kind(entity.kind))
    worded = vaguely(site, entity, name) or exactly(site, entity, name)
    sharing = len(meant(site, Ref(kind=entity.kind, conditions=(worded,))))
    return math.log2(every / sharing) / math.log2(every) if every > 1 else 1.0


def _narrows(site: Site, entity: Entity, chosen: Sequence[Condition]) -> bool:
    """Whether a page lists the matches of a condition, so that a search need not open all pages."""
    return any(attribute_of(site, entity.kind, one.attribute).listed for one in chosen)


def _idle(site: Site, entity: Entity, chosen: Sequence[Condition], linked: Linked | None) -> bool:
    """Whether a shorter description is enough: one of the conditions, or the link, adds nothing."""
    fewer = [(*chosen[:at], *chosen[at + 1 :]) for at in range(len(chosen))]
    less = [Ref(kind=entity.kind, conditions=one, linked=linked) for one in fewer]
    if linked and chosen:
        less.append(Ref(kind=entity.kind, conditions=tuple(chosen)))
    return any(unique(site, ref) for ref in less if ref.conditions or ref.linked)


class ChainOptions(ObfuscateOptions):
    """`synthesis.options.chain`."""

    hops: Count = 2
    """Maximum number of followed links."""


class Chain(TaskMaker[ChainOptions]):
    """Makes tasks to open, answer and fill the cart at the end of a chain."""

    version = "2"
    section = ChainOptions

    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Propose tasks forwards and backwards in turn."""
        site, failed, turn = site_in(material), 0, 0
        linking = [one for one in site.entities if one.links]
        while failed < MOST_TRIED:
            turn += 1
            entity = chance.choice(linking)
            length = chance.randint(1, self.options.hops)
            found = (
                self._forwards(site, entity, length, chance)
                if turn % 2
                else self._backwards(site, entity, length, chance)
            )
            if found is None:
                failed += 1
                continue
            end, ref = found
            verb = chance.choice(("answer", "answer", "open"))
            if verb == "answer" and not asked(end, ref):
                continue
            failed = 0
            goal = goal_for(verb, site, end, ref, chance)
            yield proposal(self, material, [goal], start(material, "home"), (), chance)

    def _forwards(self, site: Site, entity: Entity, length: int, chance: random.Random) -> tuple[Entity, Ref] | None:
        ref = described(site, entity, self.options, chance)
        for _ in range(length):
            if ref is None or not entity.links:
                break
            relation = chance.choice(sorted(entity.links))
            entity, ref = entity_of(site, entity.links[relation]), Ref(relation=relation, of=ref)
        return (entity, ref) if ref is not None and unique(site, ref) else None

    def _backwards(self, site: Site, entity: Entity, length: int, chance: random.Random) -> tuple[Entity, Ref] | None:
        relation = chance.choice(sorted(entity.links))
        to = entity_of(site, entity.links[relation])
        nested = self._backwards(site, to, length - 1, chance) if length > 1 and to.links else None
        ends = nested[1] if nested else described(site, to, self.options, chance)
        ref = ends and described(site, entity, self.options, chance, Linked(relation, ends))
        return (entity, ref) if ref else None


class Harden(TaskMaker[ObfuscateOptions]):
    """Makes a parent harder in one way at a time, which is sampled."""

    version = "2"
    section = ObfuscateOptions

    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Propose tasks from the environment's own tasks and from made ones; those that fail come first."""
        site, failed = site_in(material), 0
        while material.parents and failed < MOST_TRIED:
            parent = drawn(material.parents, chance)
            goals = list(parent.goals) or [sampled(verb, site, chance) for verb in verbs_of(material, parent)]
            initial = {**start(material, "home"), **({"cart": parent.initial["cart"]} if parent.initial else {})}
            harder = self._harder(site, goals, initial, chance)
            failed = 0 if harder else failed + 1
            if harder:
                yield proposal(self, material, *harder, [parent.task_id], chance)

    def _harder(
        self, site: Site, goals: list[MakerGoal], initial: State, chance: random.Random
    ) -> tuple[list[MakerGoal], State] | None:
        way = chance.choice(("farther", "described", "distracted"))
        if way == "distracted":
            if not any(goal.verb == "cart" for goal in goals) or initial["cart"]:
                return None
            others = chance.sample([one.key for one in site.of_kind(site.goods)], 2)
            return goals, {**initial, "cart": {key: chance.randint(1, 2) for key in others}}
        if way == "described":
            described = [self._described(site, goal, chance) for goal in goals]
            changed = [new or old for new, old in zip(described, goals, strict=True)]
            return (changed, initial) if any(described) else None
        return goals, initial

    def _described(self, site: Site, goal: MakerGoal, chance: random.Random) -> MakerGoal | None:
        if goal.ref is None or not goal.ref.title:
            return None
        ref = described(site, entity_of(site, goal.entity), self.options, chance)
        if ref is None or (goal.verb == "answer" and goal.attribute not in asked(entity_of(site, goal.entity), ref)):
            return None
        return replace(goal, ref=ref)
