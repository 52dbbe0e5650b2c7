"""Makes variations of a task: the same request for another entity, in other words, from another page."""

import random
from collections.abc import Iterator

from curation.synthesis.maker import MakerInputs, Parent, ProposedTask, TaskMaker, drawn
from curation.synthesis.making import near, proposal, sampled, site_in, start
from schemas.config.section import Section


class Vary(TaskMaker[Section]):
    """The parent's verbs with other targets, counts and texts; every entity is named."""

    version = "2"

    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Propose tasks from the environment's own tasks and from made ones; those that fail come first."""
        site = site_in(material)
        while material.parents:
            parent = drawn(material.parents, chance)
            goals = [sampled(verb, site, chance) for verb in verbs_of(material, parent)]
            page = near(site, goals, chance)
            yield proposal(self, material, goals, start(material, page), [parent.task_id], chance)


def verbs_of(material: MakerInputs, parent: Parent) -> list[str]:
    """Return the verbs of a parent's goals."""
    own = [verb for verb in material.world.roots if parent.task_id == material.root(verb)]
    return own or [goal.verb for goal in parent.goals]
