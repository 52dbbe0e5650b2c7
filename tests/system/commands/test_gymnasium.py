"""gymnasium's own environments in a worker, where `FLYWHEEL_GYMNASIUM_PYTHON` names a Python that has it
(`flywheel environments add gymnasium`, docs/sandboxes.md)."""

import asyncio
import os
from typing import Any

import psutil
import pytest

from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.workers.environment import WorkerConfig, WorkerEnvironment
from models.explorer import PageExplorer
from rollout.actor import Actor
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas import action as act
from schemas.context import ContextRule
from schemas.failure import ActionFailure, SandboxFailure
from schemas.observation import Observation, Outcome
from tests.tiers import lacks

PYTHON = os.environ.get("FLYWHEEL_GYMNASIUM_PYTHON", "")
WHY = lacks("no gymnasium in FLYWHEEL_GYMNASIUM_PYTHON", "flywheel environments add gymnasium")
pytestmark = pytest.mark.skipif(not PYTHON, reason=WHY)
POLE = {"env": "CartPole-v1", "keys": {"left": 0, "right": 1}}
GRID = {"env": "minigrid:MiniGrid-Empty-5x5-v0", "keys": {"left": 0, "right": 1, "up": 2}}


def environment(reset: dict[str, Any], **keys: Any) -> WorkerEnvironment:
    tasks = {"play": {"instruction": "Play.", "reset": reset}}
    given = {"kind": "worker", "module": "gymnasium", "python": PYTHON, "processes": 1, "tasks": tasks, **keys}
    return WorkerEnvironment("gyms", WorkerConfig.model_validate(given))


async def played(pool: SandboxPool, theirs: WorkerEnvironment, seed: int, *keys: str) -> tuple[Observation, Outcome]:
    """What was shown first, and how it stands after these keys."""
    verifier = verifier_of("openenv")
    assert verifier is not None
    async with pool.lease(theirs.task("play"), seed) as sandbox:
        first = await sandbox.observe()
        for key in keys:
            assert await sandbox.perform(act.Hotkey(key=key)) is None
        return first, await sandbox.verify(verifier)


def test_rewards_are_summed_into_a_return_and_a_seed_shows_the_same_again() -> None:
    async def run() -> list[tuple[Observation, Outcome]]:
        theirs = environment(POLE, rewards="summed", full_reward=500)
        async with SandboxPool([theirs]) as pool:
            falls = [await played(pool, theirs, 7, *["left"] * 9) for _ in range(2)]
            return [*falls, await played(pool, theirs, 8, "left", "right")]

    before = {one.pid for one in psutil.Process().children(recursive=True)}
    (first, fell), (again, _), (other, stands) = asyncio.run(run())
    assert (first.width, first.height) == (600, 400)
    assert first == again and first.png != other.png
    assert fell.done and not fell.truncated and 8 / 500 <= fell.reward <= 11 / 500
    assert not stands.done and stands.reward == pytest.approx(2 / 500)
    assert {one.pid for one in psutil.Process().children(recursive=True)} <= before


def test_the_explorer_plays_it_with_its_keys() -> None:
    async def run() -> list[FinishedTrajectory]:
        theirs = environment(POLE, rewards="summed", full_reward=500)
        with Actor(PageExplorer()) as actor:
            async with SandboxPool([theirs]) as pool:
                task = theirs.task("play", max_steps=100)
                planned = [PlannedTrajectory("lake", "run", 0, task, seed, "explorer", "e") for seed in range(3)]
                return [await roll_out(pool, one, [actor], False, ContextRule(1)) for one in planned]

    ran = asyncio.run(run())
    assert {one.trajectory.termination for one in ran} == {"done"}
    assert all((one.trajectory.reward or 0.0) > 5 / 500 for one in ran)


def test_a_goal_is_a_success_and_a_limit_of_the_environments_own_is_none() -> None:
    async def run() -> tuple[Outcome, Outcome]:
        goal, short = environment(GRID), environment({**GRID, "options": {"max_steps": 3}})
        async with SandboxPool([goal]) as pool:
            won = (await played(pool, goal, 1, "up", "up", "right", "up", "up"))[1]
        async with SandboxPool([short]) as pool:
            return won, (await played(pool, short, 1, "left", "left", "left"))[1]

    won, limited = asyncio.run(run())
    assert won.done and won.reward > 0.9
    assert limited.truncated and not limited.done and limited.reward == 0.0


def test_a_key_that_is_no_action_is_the_policys_failure_and_a_name_that_is_none_is_not() -> None:
    async def run() -> None:
        theirs = environment(POLE)
        async with SandboxPool([theirs]) as pool:
            with pytest.raises(ActionFailure, match=r"no action is '(arrow)?up'"):
                await played(pool, theirs, 1, "up")
            assert not (await played(pool, theirs, 1, "left"))[1].done
        nothing = environment({**POLE, "env": "NoSuchWorld-v0"})
        async with SandboxPool([nothing]) as pool:
            with pytest.raises(SandboxFailure, match="NoSuchWorld"):
                await played(pool, nothing, 1)

    asyncio.run(run())
