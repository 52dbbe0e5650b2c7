"""Measure how often a player that has to search solves newly made tasks within their limits.

`python -m benchmarks.made_tasks [--seeds 4711 4712] [--short] --json PATH`

Each maker proposes 20 tasks of the site's own ones, then 20 of those accepted. Each accepted task is played in 30
trajectories, none of which set its limit. It counts as solvable if half of them stay within the limit.
"""

import argparse
import random
import statistics
from collections.abc import Sequence
from itertools import islice
from typing import Any

from benchmarks.harness import Bar, add_options, finish
from curation.synthesis.acceptance import AcceptanceDecision, decide, identity
from curation.synthesis.leaks import held_out
from curation.synthesis.maker import MakerInputs, Parent, ProposedTask
from curation.synthesis.making import makers_of
from curation.synthesis.player import TRIES, Player, PlayerLost, steps_of, vocabulary
from curation.synthesis.words import asks
from environments.site.environment import SiteConfig, SiteEnvironment
from schemas.config.curating import SynthesisConfig
from schemas.world import score

PROPOSALS, MIN_SOLVABLE = 20, 0.95
TRAJECTORIES = range(10_000 + TRIES, 10_030 + TRIES)
"""Seeds that set no limit."""
LOST = 1000
"""Steps after which the player gives up."""
Decided = tuple[ProposedTask, AcceptanceDecision]


def propose(environment: SiteEnvironment, seed: int) -> list[Decided]:
    """Return the proposals of all makers in two iterations, each with its decision."""
    options = SynthesisConfig()
    makers, reward = makers_of(options)
    tasks = [environment.task(name) for name in environment.entries]
    parents = [Parent(one.task_id, one.instruction, one.max_steps) for one in tasks]
    world, layout, nothing = environment.world, environment.layout, held_out((), {})
    found, known, keys = list[Decided](), set[str](), set[str]()
    for iteration in range(2):
        material = MakerInputs("site", world, parents, layout)
        for maker in makers:
            chance = random.Random(f"{seed} {iteration} {maker.name}")
            new = (one for one in maker.propose(material, chance) if one.key not in keys)
            for one in islice(new, PROPOSALS):
                keys.add(one.key)
                decision = decide(one, world, reward, nothing, known, options.near_misses, layout, options.max_steps)
                found.append((one, decision))
                if decision.accepted:
                    known.add(identity("site", one.instruction))
        made = [(one, decision.max_steps) for one, decision in found if decision.accepted]
        parents += [Parent(one.task_id, one.instruction, limit, one.goals, one.initial) for one, limit in made]
    return found


def steps(environment: SiteEnvironment, one: ProposedTask, decision: AcceptanceDecision) -> list[int]:
    """Return the player's steps in each trajectory, whatever the limit; `LOST` where it does not get there."""
    site, layout, taken = environment.world.site, environment.layout, list[int]()
    assert site is not None
    blind = vocabulary(site)
    sentences = asks(blind, one.instruction)
    for seed in TRAJECTORIES:
        walk = layout.walk(one.initial, seed)
        try:
            player = Player(blind, layout)
            found = steps_of(player, walk, sentences, lambda state: score(decision.checks, state) == 1.0, LOST)
        except PlayerLost:
            found = None
        taken.append(LOST if found is None else found)
    return taken


def row(environment: SiteEnvironment, seed: int, maker: str, found: Sequence[Decided]) -> dict[str, Any]:
    """Return the row of a maker's proposals."""
    played = [(d.max_steps, steps(environment, one, d)) for one, d in found if d.accepted]
    within = [statistics.mean(step <= limit for step in taken) for limit, taken in played]
    return {
        "seed": seed,
        "maker": maker,
        "proposed": len(found),
        "accepted": len(played),
        "search too long": sum(decision.reason == "search" for _, decision in found),
        "limit, median": statistics.median(limit for limit, _ in played),
        "steps, median": statistics.median(step for _, taken in played for step in taken),
        "within the limit": statistics.mean(within),
        "solvable": statistics.mean(share >= 0.5 for share in within),
    }


def main() -> int:
    """Print the table; exit status 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=(4711, 4712), help="of the sites and of the makers")
    chosen, rows = add_options(parser).parse_args(), list[dict[str, Any]]()
    for seed in chosen.seeds[: 1 if chosen.short else None]:
        environment = SiteEnvironment("site", SiteConfig(kind="site", skin="drawn", site_seed=seed))
        found = propose(environment, seed)
        for name in dict.fromkeys(one.maker for one, _ in found):
            rows.append(row(environment, seed, name, [pair for pair in found if pair[0].maker == name]))
    bars = [
        Bar(f"{one['maker']}, seed {one['seed']}: solvable", one["solvable"], MIN_SOLVABLE, "higher") for one in rows
    ]
    return finish("made_tasks", rows, bars, chosen)


if __name__ == "__main__":
    raise SystemExit(main())
