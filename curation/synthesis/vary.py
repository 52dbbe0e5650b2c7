"""Makes variations of a task, and composes two tasks to one.

A variation is the same request for another entity, in other words, from another page. On a site, the goals of two tasks
are joined; other tasks are performed in turn.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations

from curation.synthesis.goal import MakerGoal, agree
from curation.synthesis.maker import MakerInputs, Parent, ProposedTask, TaskMaker, drawn
from curation.synthesis.making import near, proposal, sampled, site_in, start
from schemas.config.section import Section
from schemas.world import State, in_turn


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


MOST_TRIED = 100
"""Number of consecutive pairs whose goals do not agree, after which the proposals end."""


class Compose(TaskMaker[Section]):
    """Joins two parents; those that fail come first."""

    version = "3"
    needs_site = False

    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Propose pairs, each sampled anew."""
        return self._joined(material, chance) if material.world.site else self._in_turn(material, chance)

    def _joined(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        failed = 0
        while material.parents and failed < MOST_TRIED:
            parents = [drawn(material.parents, chance) for _ in range(2)]
            goals = [goal for parent in parents for goal in self._goals(material, parent, chance)]
            failed += 1
            if agree(goals):
                failed = 0
                names = [parent.task_id for parent in parents]
                page = near(site_in(material), goals, chance)
                yield proposal(self, material, goals, start(material, page), names, chance)

    def _goals(self, material: MakerInputs, parent: Parent, chance: random.Random) -> Sequence[MakerGoal]:
        verbs = verbs_of(material, parent)
        return parent.goals or [sampled(verb, site_in(material), chance) for verb in verbs]

    def _in_turn(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Yield pairs of the environment's own tasks with unique words, with the most frequently failing ones first."""
        words = Counter(material.world.parts.values())
        own = {name: text for name, text in material.world.parts.items() if words[text] == 1}
        usable = [one for one in material.parents if one.instruction == own.get(one.task_id.partition("/")[2])]
        pairs = list(permutations(usable, 2))
        chance.shuffle(pairs)
        pairs.sort(key=lambda pair: -sum(one.failures for one in pair))
        for pair in pairs:
            parts = [one.task_id.partition("/")[2] for one in pair]
            initial: State = {"parts": " ".join(parts), "rewards": []}
            golden: State = {**initial, "rewards": [1.0] * len(parts)}
            others = [name for name in own if name not in parts][:1]
            wrong = [" ".join(names) for names in (parts[::-1], *([parts[0], name] for name in others))]
            undone = ([1.0], [1.0, 0.0], [0.0], [0.0, 1.0], [1.0, -1.0])
            yield ProposedTask(
                maker=self.name,
                version=self.version,
                environment=material.environment,
                instruction=in_turn([one.instruction for one in pair]),
                initial=initial,
                golden=golden,
                near_misses=(
                    *({**golden, "rewards": one} for one in undone),
                    *({**golden, "parts": one} for one in wrong),
                ),
                parents=tuple(one.task_id for one in pair),
                max_steps=sum(one.max_steps for one in pair),
                tags=(self.name, "multi-step"),
            )
