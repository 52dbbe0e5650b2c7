"""Multi-hop chains (UI-TARS-2, arXiv 2509.02544): each hop's answer is embedded in the next question.

Forwards, a question asks for the target of links: `the city of the maker of the product that ...`. Backwards, each
linked entity is described instead of named: `the product whose maker is the maker whose city is the city that ...`.
"""

import random
from collections.abc import Iterator

from curation.synthesis.goal import entity_of
from curation.synthesis.maker import MakerInputs, ProposedTask, TaskMaker
from curation.synthesis.making import asked, goal_for, proposal, site_in, start
from curation.synthesis.obfuscate import MOST_TRIED, ObfuscateOptions, described
from curation.synthesis.reference import Linked, Ref, unique
from schemas.config.section import Count
from schemas.world import Entity, Site


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
