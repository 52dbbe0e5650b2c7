"""How often a player that has to search solves newly made tasks within their limits.

`python -m benchmarks.made_tasks [--seeds 4711 4712] [--short] --json PATH`

For each seed, each maker proposes 20 tasks of the site's own ones and then 20 of those that were accepted, as two
iterations do. Each accepted task is played in 30 trajectories, none of them one from which its limit was set. A task
counts as solvable where the player stays within the limit in at least half of them.
"""

import argparse
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from benchmarks.shared.report import Bar, add_options, finish
from curation.synthesis.acceptance import AcceptanceDecision, decide, identity
from curation.synthesis.leaks import held_out
from curation.synthesis.maker import MakerInputs, Parent, ProposedTask
from curation.synthesis.makers import makers_of
from curation.synthesis.player import TRIES, Player, PlayerLost, steps_of, vocabulary
from curation.synthesis.words import asks
from environments.site.environment import SiteConfig, SiteEnvironment
from schemas.config.curating import SynthesisConfig
from schemas.world import score

PROPOSALS = 20
TRAJECTORIES = range(10_000 + TRIES, 10_030 + TRIES)
"""Seeds that no limit was set from."""
LEAST = 0.95
"""Share of a maker's accepted tasks that must be solvable."""


@dataclass(frozen=True, slots=True)
class Played:
    """A proposal, what was decided of it, and the steps that the player took; None where it did not get there."""

    proposal: ProposedTask
    decision: AcceptanceDecision
    steps: Sequence[int | None] = ()

    @property
    def within(self) -> float:
        """The share of trajectories within the limit."""
        return sum(one is not None and one <= self.decision.max_steps for one in self.steps) / len(self.steps)


def environment_of(seed: int) -> SiteEnvironment:
    """A site of its own for a seed; its pages are walked without a browser."""
    return SiteEnvironment("site", SiteConfig(kind="site", skin="drawn", browsers=1, pages=1, site_seed=seed))


def proposed(seed: int) -> list[Played]:
    """What all makers propose in two iterations, each accepted one played."""
    environment, options = environment_of(seed), SynthesisConfig()
    makers, reward = makers_of(options)
    tasks = [environment.task(name) for name in environment.entries]
    parents = [Parent(one.task_id, one.instruction, one.max_steps) for one in tasks]
    world, layout, nothing = environment.world, environment.layout, held_out((), {})
    found: list[Played] = []
    known, keys = set[str](), set[str]()
    for iteration in range(2):
        material, made = MakerInputs("site", world, parents, layout), list[Played]()
        for maker in makers:
            chance = random.Random(f"{seed} {iteration} {maker.name}")
            new = (one for one in maker.propose(material, chance) if one.key not in keys)
            for one in islice(new, PROPOSALS):
                keys.add(one.key)
                decision = decide(one, world, reward, nothing, known, options.near_misses, layout, options.max_steps)
                made.append(Played(one, decision))
                if decision.accepted:
                    known.add(identity("site", one.instruction))
        found += [replace(one, steps=played(environment, one)) if one.decision.accepted else one for one in made]
        parents = [*parents, *(_parent(one) for one in made if one.decision.accepted)]
    return found


def played(environment: SiteEnvironment, one: Played) -> list[int | None]:
    """The steps of one trajectory after the other, however many."""
    site = environment.world.site
    assert site is not None
    blind, steps = vocabulary(site), list[int | None]()
    sentences = asks(blind, one.proposal.instruction)
    for seed in TRAJECTORIES:
        walk = environment.layout.walk(one.proposal.initial, seed)
        try:
            player = Player(blind, environment.layout)
            found = steps_of(player, walk, sentences, lambda state: score(one.decision.checks, state) == 1.0, 1000)
        except PlayerLost:
            found = None
        steps.append(found)
    return steps


def _parent(one: Played) -> Parent:
    made = one.proposal
    return Parent(made.task_id, made.instruction, one.decision.max_steps, made.goals, made.initial)


def row_of(seed: int, maker: str, found: Sequence[Played]) -> dict[str, Any]:
    """What came of a maker's proposals."""
    accepted = [one for one in found if one.decision.accepted]
    reasons = [one.decision.reason for one in found]
    return {
        "seed": seed,
        "maker": maker,
        "proposed": len(found),
        "accepted": len(accepted),
        "search too long": reasons.count("search"),
        "limit, median": statistics.median(one.decision.max_steps for one in accepted),
        "steps, median": statistics.median(step or 1000 for one in accepted for step in one.steps),
        "within the limit": statistics.mean(one.within for one in accepted),
        "solvable": statistics.mean(one.within >= 0.5 for one in accepted),
    }


def main() -> int:
    """Prints the table; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=(4711, 4712), help="of the sites and of the makers")
    chosen = add_options(parser).parse_args()
    rows: list[dict[str, Any]] = []
    for seed in chosen.seeds[: 1 if chosen.short else None]:
        found = proposed(seed)
        for name in dict.fromkeys(one.proposal.maker for one in found):
            rows.append(row_of(seed, name, [one for one in found if one.proposal.maker == name]))
    bars = [Bar(f"{row['maker']}, seed {row['seed']}: solvable", row["solvable"], LEAST, "higher") for row in rows]
    return finish("made tasks", rows, bars, chosen.json)


if __name__ == "__main__":
    raise SystemExit(main())
