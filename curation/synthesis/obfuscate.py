"""Multi-condition obfuscation (UI-TARS-2, arXiv 2509.02544): an entity asked for by what it is like, not by its name.

Each attribute of it is scored for how distinctive it is, in bits: log2 of how many entities of its kind there are over
how many share the value. What reveals too much is dropped, the rest is made vaguer, and of that as few conditions are
kept as single the entity out, over the whole site.
"""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations

from curation.synthesis.maker import MakerInputs, ProposedTask, TaskMaker
from curation.synthesis.making import asked, goal_for, proposal, site_in, start
from curation.synthesis.reference import Condition, Linked, Ref, attribute_of, exactly, meant, unique, vaguely
from schemas.config.section import Count, Section, Share
from schemas.world import Entity, Site

MOST_TRIED = 40
"""Entities in a row that could not be singled out, after which there are no more proposals."""


class ObfuscateOptions(Section):
    """`synthesis.options.obfuscate`, and of `chain` and `harden` as well."""

    conditions: Count = 3
    """At most so many conditions."""
    revealing: Share = 0.9
    """An attribute is dropped whose value tells more than this share of what would single an entity out of its kind."""


class Obfuscate(TaskMaker[ObfuscateOptions]):
    """Opens, answers and fills the cart by description."""

    version = "2"
    section = ObfuscateOptions

    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """An entity, a description of it, and something to do with it, from the page that lists everything."""
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
    """The shortest description that only this entity fits; None if no few conditions single it out.

    Of equally short ones, one with a condition that a page lists comes first: the search for it is shorter.

    Args:
        site: every entity of it is looked at.
        entity: what is meant.
        options: how many conditions, and what reveals too much.
        chance: the order in which equally good ones are tried.
        linked: a condition that comes last, of what the entity links to.
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
    """How much an attribute's exact value tells, in [0, 1]: 1 singles the entity out of its kind by itself."""
    every = len(site.of_kind(entity.kind))
    sharing = len(meant(site, Ref(kind=entity.kind, conditions=(exactly(site, entity, name),))))
    vague = vaguely(site, entity, name)
    if vague is not None:  # what is written is the vaguer form, so that is what may reveal
        sharing = len(meant(site, Ref(kind=entity.kind, conditions=(vague,))))
    return math.log2(every / sharing) / math.log2(every) if every > 1 else 1.0


def _narrows(site: Site, entity: Entity, chosen: Sequence[Condition]) -> bool:
    """Whether a page lists what meets one of the conditions, so that nobody has to open the page of every other."""
    return any(attribute_of(site, entity.kind, one.attribute).listed for one in chosen)


def _idle(site: Site, entity: Entity, chosen: Sequence[Condition], linked: Linked | None) -> bool:
    """Whether a shorter description would do: one of the conditions, or the link, adds nothing."""
    fewer = [(*chosen[:at], *chosen[at + 1 :]) for at in range(len(chosen))]
    less = [Ref(kind=entity.kind, conditions=one, linked=linked) for one in fewer]
    if linked and chosen:
        less.append(Ref(kind=entity.kind, conditions=tuple(chosen)))
    return any(unique(site, ref) for ref in less if ref.conditions or ref.linked)
