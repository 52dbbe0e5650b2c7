"""A site, what makers are handed of it, and their proposals."""

import random
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from curation.synthesis.acceptance import AcceptanceDecision, decide
from curation.synthesis.leaks import HeldOut, held_out
from curation.synthesis.maker import MakerInputs, Parent, ProposedTask, maker_of, reward_maker_of
from environments.site.environment import SiteConfig, SiteEnvironment
from schemas.tables.task import GuiTask

SITE = SiteEnvironment("site", SiteConfig(kind="site", skin="drawn", browsers=1, pages=2))
WORLD = SITE.world
TASKS = [SITE.task(name) for name in SITE.entries]
MATERIAL = MakerInputs("site", WORLD, [Parent(one.task_id, one.instruction, one.max_steps) for one in TASKS])
NAMES = ("compose", "vary", "harden", "obfuscate", "chain")
NOTHING = held_out((), {})


def proposed(name: str, count: int = 40, seed: int = 1, options: Mapping[str, Any] | None = None) -> list[ProposedTask]:
    maker = maker_of(name, options or {})
    return list(islice(maker.propose(MATERIAL, random.Random(f"{name} {seed}")), count))


def decided(one: ProposedTask, held: HeldOut = NOTHING, known: Sequence[str] = ()) -> AcceptanceDecision:
    return decide(one, WORLD, reward_maker_of("reader", {}), held, known, 3)


def holding_out(*names: str, parents: Mapping[str, Sequence[str]] | None = None) -> HeldOut:
    tasks: list[GuiTask] = [one.model_copy(update={"split": "held_out"}) for one in TASKS if one.template in names]
    return held_out(tasks, parents or {})
