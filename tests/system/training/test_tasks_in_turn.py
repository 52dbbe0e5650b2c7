"""Two MiniWoB++ tasks as one: the second begins where the first was done well, and only both together are rewarded."""

import asyncio
import random
from dataclasses import replace
from itertools import islice

import pytest

from curation.synthesis.acceptance import decide
from curation.synthesis.leaks import held_out
from curation.synthesis.maker import MakerInputs, Parent, ProposedTask, RewardMaker, maker_of, reward_maker_of
from environments.miniwob.environment import MiniwobSandbox
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from schemas import action as act
from schemas.config.section import Section
from schemas.observation import Outcome
from schemas.world import FieldCheck, State, World
from tasks.synthesize import task_of
from tests.parts import miniwob

MINIWOB = miniwob(browsers=1, pages=1)
TASKS = [MINIWOB.task(name) for name in ("click-test", "click-test-2")]
READER = reward_maker_of("reader", {})


def pairs() -> list[ProposedTask]:
    parents = [Parent(one.task_id, one.instruction, one.max_steps) for one in TASKS]
    material = MakerInputs("miniwob", MINIWOB.world, parents)
    return list(islice(maker_of("compose", {}).propose(material, random.Random(0)), 10))


class AllDone(RewardMaker[Section]):
    """Wants two tasks done, whatever the words."""

    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        return (FieldCheck(field="rewards", value=[1.0, 1.0]),)


async def click(sandbox: Sandbox, name: str) -> None:
    found = (await sandbox.observe(elements=True)).elements
    x, y = next(one for one in found if one.name.lower() == name.lower()).centre
    await sandbox.perform(act.Click(x=x, y=y))


@pytest.mark.usefixtures("real_browser")
@pytest.mark.parametrize(
    ("second", "outcome", "rewards"), [("ONE", Outcome(True, 1.0), [1.0, 1.0]), ("TWO", Outcome(True, 0.0), None)]
)
def test_the_second_task_begins_when_the_first_is_done(second: str, outcome: Outcome, rewards: list[float]) -> None:
    one = next(each for each in pairs() if each.initial["parts"] == "click-test click-test-2")
    decision = decide(one, MINIWOB.world, READER, held_out((), {}), (), 3)
    assert decision.accepted, decision.detail
    verifier = verifier_of("state")
    assert verifier is not None

    async def rolled() -> tuple[Outcome, Outcome, Outcome, State, str]:
        async with SandboxPool([MINIWOB]) as pool, pool.lease(task_of(one, decision), 1_000_001) as sandbox:
            assert isinstance(sandbox, MiniwobSandbox)
            said = (await sandbox.observe()).instruction
            before = await sandbox.verify(verifier)
            await click(sandbox, "Click Me!")
            between = await sandbox.verify(verifier)
            await click(sandbox, second)
            return before, between, await sandbox.verify(verifier), sandbox.state, said

    before, between, after, state, said = asyncio.run(rolled())
    assert before == between == Outcome(False, 0.0) and after == outcome
    assert state["rewards"] == (rewards or state["rewards"]) and len(state["rewards"]) == 2
    assert said == "Do 2 tasks one after the other: (1) Click the button. (2) Click button ONE."


def test_a_pair_of_which_one_is_held_out_is_not_made() -> None:
    apart = [TASKS[0], TASKS[1].model_copy(update={"split": "held_out"})]
    decisions = [decide(one, MINIWOB.world, READER, held_out(apart, {}), (), 3) for one in pairs()]
    assert [one.reason for one in decisions] == ["held out"] * 2
    orphans = [replace(one, instruction="Two.", parents=()) for one in pairs()]
    decisions = [decide(one, MINIWOB.world, AllDone("all", Section()), held_out(apart, {}), (), 3) for one in orphans]
    assert [one.reason for one in decisions] == ["held out"] * 2
    unknown = replace(orphans[0], initial={**orphans[0].initial, "parts": "click-test nowhere"})
    assert decide(unknown, MINIWOB.world, READER, held_out((), {}), (), 3).reason == "malformed"
