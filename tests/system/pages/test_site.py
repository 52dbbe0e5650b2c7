"""A made chain in a real Chromium: somebody who knows the way is rewarded, somebody who nearly does it is not."""

import asyncio
import json

from curation.synthesis.acceptance import decide
from curation.synthesis.maker import reward_maker_of
from curation.synthesis.player import Player, steps_of, vocabulary
from curation.synthesis.words import asks
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from environments.site.environment import SiteConfig, SiteEnvironment, SiteSandbox
from environments.verifier import Verifier
from schemas import action as act
from schemas.observation import Outcome
from schemas.tables.task import GuiTask
from schemas.world import Entity, FieldCheck, Setup, State, score
from tasks.synthesize import task_of
from tests.unit.curation.synthesis.parts import NAMES, NOTHING, WORLD, decided, proposed
from tests.unit.curation.synthesis.searching import steps_in

CHROMIUM = SiteEnvironment("site", SiteConfig(kind="site", browsers=1, pages=1))
LISTED = {"maker": "Makers", "designer": "Designers", "city": "Cities"}


async def click(sandbox: Sandbox, name: str) -> None:
    found = (await sandbox.observe(elements=True)).elements
    x, y = next(one for one in found if one.interactive and one.name == name).centre
    await sandbox.perform(act.Click(x=x, y=y))


async def handed_in(pool: SandboxPool, task: GuiTask, entity: Entity, value: str, verifier: Verifier) -> Outcome:
    """Goes to an entity by the lists, and hands in a value that its page shows."""
    async with pool.lease(task, 11) as sandbox:
        await click(sandbox, "Home")
        await click(sandbox, LISTED.get(entity.kind) or f"{entity.values['type']}s")
        await click(sandbox, entity.title)
        assert await sandbox.verify(verifier) == Outcome(False, 0.0)
        await click(sandbox, f"Use {value}")
        await click(sandbox, "Hand in")
        return await sandbox.verify(verifier)


def test_a_chain_is_solved_by_its_last_page_and_no_other_answer() -> None:
    one = next(
        each
        for each in proposed("chain", 60)
        if each.goals[0].verb == "answer" and " of the city of " in each.instruction
    )
    task, goal = task_of(one, decided(one)), one.goals[0]
    assert WORLD.site is not None
    entity = next(each for each in WORLD.site.entities if each.key == goal.entity)
    right = str(entity.values[goal.attribute])
    wrong = next(str(value) for name, value in entity.values.items() if name != goal.attribute)
    verifier = verifier_of("state")
    assert verifier is not None

    async def both() -> tuple[Outcome, Outcome]:
        async with SandboxPool([CHROMIUM]) as pool:
            return (
                await handed_in(pool, task, entity, right, verifier),
                await handed_in(pool, task, entity, wrong, verifier),
            )

    assert asyncio.run(both()) == (Outcome(True, 1.0), Outcome(True, 0.0))


def test_every_state_of_a_made_task_can_be_set_and_is_scored_as_its_checks_say() -> None:
    made = [one for name in ("compose", "harden") for one in proposed(name, 12)]

    async def scored(pool: SandboxPool, task: GuiTask, state: State) -> float:
        setup = f'{{"initial": {_json(state)}, "checks": {_json([c.model_dump() for c in _checks(task)])}}}'
        async with pool.lease(task.model_copy(update={"setup": setup}), 3) as sandbox:
            assert isinstance(sandbox, SiteSandbox) and sandbox.state == state
            verifier = verifier_of("state")
            assert verifier is not None
            return (await sandbox.verify(verifier)).reward

    async def all_of() -> None:
        async with SandboxPool([CHROMIUM]) as pool:
            for one in made:
                task = task_of(one, decided(one))
                assert await scored(pool, task, one.golden) == 1.0, one.instruction
                for state in (one.initial, *one.near_misses[:2]):
                    assert await scored(pool, task, state) == 0.0, one.instruction

    asyncio.run(all_of())


def _checks(task: GuiTask) -> tuple[FieldCheck, ...]:
    return Setup.model_validate_json(task.setup or "").checks


def _json(value: object) -> str:
    return json.dumps(value)


def test_what_is_typed_in_a_browser_is_what_the_state_holds() -> None:
    async def typed() -> tuple[State, bytes, bytes]:
        async with SandboxPool([CHROMIUM]) as pool, pool.lease(CHROMIUM.task("write-note"), 2) as sandbox:
            before = (await sandbox.observe()).png
            await click(sandbox, "Note")
            await sandbox.perform(act.Type(content="<b>späte</b>"))
            after = (await sandbox.observe()).png
            await click(sandbox, "Home")
            assert isinstance(sandbox, SiteSandbox)
            return sandbox.state, before, after

    state, before, after = asyncio.run(typed())
    assert (state["note"], state["page"]) == ("<b>späte</b>", "home") and before != after


def test_the_player_that_sets_limits_solves_made_tasks_in_a_browser_in_as_many_steps() -> None:
    made = [
        (one, decide(one, WORLD, reward_maker_of("reader", {}), NOTHING, (), 3, CHROMIUM.layout))
        for name in NAMES
        for one in proposed(name, 2)
    ]
    kept = [(one, decision) for one, decision in made if decision.accepted]

    async def steps() -> list[int]:
        async with SandboxPool([CHROMIUM]) as pool:
            return [await steps_in(pool, CHROMIUM, task_of(one, decision), 7) for one, decision in kept]

    found = asyncio.run(steps())
    assert len(found) >= 7 and WORLD.site is not None
    for taken, (one, decision) in zip(found, kept, strict=True):
        player, walk = Player(vocabulary(WORLD.site), CHROMIUM.layout), CHROMIUM.layout.walk(one.initial, 7)
        sentences = asks(WORLD.site, one.instruction)
        walked = steps_of(player, walk, sentences, lambda now, c=decision.checks: score(c, now) == 1.0, 200)
        assert walked is not None and 0 < taken == walked <= decision.max_steps, one.instruction
