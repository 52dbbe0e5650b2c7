"""Sandbox, pool and session on the fake environment."""

import asyncio
from typing import Any

import pytest

from environments.catalog import catalog
from environments.pool import SandboxPool
from models.explorer import Explorer
from models.policy import Context, Reply
from rollout.session import Play, Record, play
from schemas.config import Config, config_of
from schemas.failure import SandboxFailure, UsageError
from schemas.observation import Observation, Turn
from tests.parts import FAKE, miniwob


def config(**suite: Any) -> Config:
    return config_of({"environments": {"fake": {}}, "suite": {"tasks": ["click-target"], **suite}})


class Player:
    """An actor that always says the same."""

    name, version, dialect, needs_elements = "policy", "p", "box_v1", False

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.seen: list[Observation] = []

    async def choose(self, instruction: str, turns: tuple[Turn, ...], observation: Observation, seed: int) -> Reply:
        self.seen.append(observation)
        return self.reply


def played(template: str, seed: int, reply: Reply, player: Player | None = None) -> Record:
    task = Play("t", 0, "run", FAKE.task(template), seed, 0, "policy", "p")

    async def run() -> Record:
        async with SandboxPool([FAKE]) as pool:
            return await play(pool, task, [player or Player(reply)], observe_elements=True, history_images=1)

    return asyncio.run(run())


NONSENSE = Reply("mumble", "", "mumble", None, "no action in 'mumble'")


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
                        action = Explorer().act([context])[0].action
                        assert action is not None
                        await sandbox.perform(action)
            return pool.metrics.deaths

    assert asyncio.run(die()) == 5


def test_a_reply_without_an_action_ends_the_trajectory_as_the_policys_failure_and_is_kept():
    record = played("click-target", 1, NONSENSE)
    assert record.trajectory.failure_boundary == "action"
    assert record.trajectory.success is False
    assert record.steps[0].raw_text == "mumble"
    assert record.steps[0].action is None


def test_a_dead_box_is_nobodys_failure():
    explorer = Explorer().act
    seen = Observation(b"", 1, 1, "x")
    reply = explorer([Context("x", (), seen, 1)])[0]
    record = played("dies", 3, reply)
    assert record.trajectory.failure_boundary == "sandbox"
    assert record.trajectory.success is None
    assert record.trajectory.reward is None


def test_a_policy_never_sees_the_elements_that_are_recorded_beside_it():
    player = Player(NONSENSE)
    record = played("click-target", 1, NONSENSE, player)
    assert player.seen[0].elements == ()
    assert record.steps[0].elements != "[]"


def test_the_explorer_does_the_same_on_the_same_page_with_the_same_seed():
    async def look() -> Observation:
        async with SandboxPool([FAKE]) as pool, pool.lease(FAKE.task("enter-text"), 5) as sandbox:
            return await sandbox.observe(elements=True)

    seen = asyncio.run(look())
    replies = [Explorer().act([Context(seen.instruction, (), seen, 11)])[0].text for _ in range(2)]
    assert replies[0] == replies[1]


def test_the_catalog_names_the_nearest_task_for_an_unknown_one():
    with pytest.raises(UsageError, match="click-target"):
        catalog(config(tasks=["click-tarjet"]))


def test_a_task_is_either_played_or_held_out():
    with pytest.raises(UsageError, match="held_out"):
        catalog(config(held_out=["click-target"]))


def test_all_tasks_of_miniwob_are_in_the_catalog():
    assert len(miniwob().entries) >= 125
