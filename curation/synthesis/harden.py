"""Harder forms of a task: a more distant start, a target by description, or distractors in the cart."""

import random
from collections.abc import Iterator
from dataclasses import replace

from curation.synthesis.goal import MakerGoal, entity_of
from curation.synthesis.maker import MakerInputs, ProposedTask, TaskMaker, drawn
from curation.synthesis.making import asked, proposal, sampled, site_in, start
from curation.synthesis.obfuscate import MOST_TRIED, ObfuscateOptions, described
from curation.synthesis.vary import verbs_of
from schemas.world import Site, State


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
