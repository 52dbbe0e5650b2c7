"""Sandbox, pool and session on the fake environment."""

import asyncio
from collections.abc import Sequence

import pytest

from environments.fake import FakeEnvironment, FakeSandbox
from environments.host import NoHost
from environments.pool import STARTS, SandboxPool
from models.completion import Completion
from models.explorer import PageExplorer
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.context import ContextRule
from schemas.failure import EnvironmentDown, SandboxFailure
from schemas.observation import Observation
from tests.fixtures.sentences import Sentences
from tests.parts import FAKE, miniwob


class Constant(Policy):
    """Always generates the same."""

    version, dialect = "p", "box_v1"

    def __init__(self, completion: Completion) -> None:
        self.completion = completion
        self.seen: list[Observation] = []

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        self.seen += [context.observation for context in contexts]
        return [self.completion for _ in contexts]


class Frail(NoHost):
    """Dies as it starts, so many times."""

    def __init__(self, deaths: int) -> None:
        super().__init__(lambda: FakeSandbox(FAKE.config))
        self.deaths = deaths

    async def revive(self) -> bool:
        self.deaths -= 1
        if self.deaths >= 0:
            raise SandboxFailure("the browser has died")
        return False


@pytest.mark.parametrize("deaths", [STARTS - 1, STARTS])
def test_a_host_that_dies_as_it_starts_is_started_again_a_few_times(
    deaths: int, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setattr(FakeEnvironment, "host", lambda _: Frail(deaths))
    pool = SandboxPool([FAKE])
    if deaths < STARTS:
        asyncio.run(pool.start())
    else:
        with sentence.raises(EnvironmentDown, hint="flywheel doctor"):
            asyncio.run(pool.start())


def rolled_out(template: str, seed: int, policy: Policy) -> FinishedTrajectory:
    planned = PlannedTrajectory("lake", "run", 0, FAKE.task(template), seed, "policy", "p")

    async def run() -> FinishedTrajectory:
        with Actor(policy) as actor:
            async with SandboxPool([FAKE]) as pool:
                return await roll_out(pool, planned, [actor], record_elements=True, rule=ContextRule(1))

    return asyncio.run(run())


NONSENSE = Completion("mumble", error="no action in 'mumble'")


def test_the_same_seed_shows_the_same_pixels():
    async def twice() -> list[bytes]:
        shown = []
        async with SandboxPool([FAKE]) as pool:
            for _ in range(2):
                async with pool.lease(FAKE.task("click-target"), 5) as sandbox:
                    shown.append((await sandbox.observe()).png)
        return shown

    first, second = asyncio.run(twice())
    assert first == second


def test_a_task_named_after_a_colour_has_one_button_of_it():
    async def shown(template: str) -> tuple[str, list[str]]:
        async with SandboxPool([FAKE]) as pool, pool.lease(FAKE.task(template), 3) as sandbox:
            seen = await sandbox.observe(elements=True)
            return seen.instruction, [element.name for element in seen.elements]

    assert asyncio.run(shown("click-blue")) == ('Click the "blue" button.', ["blue"])


def test_no_more_sandboxes_are_leased_at_once_than_the_pool_holds():
    leased, most = 0, 0

    async def one(pool: SandboxPool, seed: int) -> None:
        nonlocal leased, most
        async with pool.lease(FAKE.task("click-target"), seed):
            leased += 1
            most = max(most, leased)
            await asyncio.sleep(0.01)
            leased -= 1

    async def many() -> None:
        async with SandboxPool([FAKE]) as pool:
            await asyncio.gather(*(one(pool, seed) for seed in range(12)))

    asyncio.run(many())
    assert most == 3


def test_a_box_that_dies_is_a_sandbox_failure_and_its_lease_is_given_back():
    async def die() -> int:
        async with SandboxPool([FAKE]) as pool:
            for _ in range(5):
                with pytest.raises(SandboxFailure):
                    async with pool.lease(FAKE.task("dies"), 3) as sandbox:
                        seen = await sandbox.observe(elements=True)
                        context = Context(seen.instruction, (), seen, 1)
                        action = PageExplorer().act([context])[0].first
                        assert action is not None
                        await sandbox.perform(action)
            return pool.metrics.deaths

    assert asyncio.run(die()) == 5


def test_a_reply_without_an_action_ends_the_trajectory_as_the_policys_failure_and_is_kept():
    record = rolled_out("click-target", 1, Constant(NONSENSE))
    assert record.trajectory.failure_boundary == "action"
    assert record.trajectory.success is False
    assert record.steps[0].raw_text == "mumble"
    assert record.steps[0].first is None


def test_a_dead_box_is_nobodys_failure():
    record = rolled_out("dies", 3, PageExplorer())
    assert record.trajectory.failure_boundary == "sandbox"
    assert record.trajectory.success is None
    assert record.trajectory.reward is None


def test_a_policy_never_sees_the_elements_that_are_recorded_beside_it():
    policy = Constant(NONSENSE)
    record = rolled_out("click-target", 1, policy)
    assert policy.seen[0].elements == ()
    assert record.steps[0].elements != "[]"


def test_the_explorer_does_the_same_on_the_same_page_with_the_same_seed():
    async def look() -> Observation:
        async with SandboxPool([FAKE]) as pool, pool.lease(FAKE.task("enter-text"), 5) as sandbox:
            return await sandbox.observe(elements=True)

    seen = asyncio.run(look())
    replies = [PageExplorer().act([Context(seen.instruction, (), seen, 11)])[0].text for _ in range(2)]
    assert replies[0] == replies[1]


def test_all_tasks_of_miniwob_are_in_the_catalog():
    assert len(miniwob().entries) >= 125
