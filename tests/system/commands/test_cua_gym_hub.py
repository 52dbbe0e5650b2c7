"""Our tasks on CUA-Gym-Hub's own applications, which nothing here brings: `FLYWHEEL_CUA_GYM_HUB` names a folder that
`flywheel environments add cua-gym-hub` built them in (docs/webapps.md)."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from environments.pool import SandboxPool
from environments.webapp.environment import WebAppConfig, WebAppEnvironment, WebAppReward, WebAppSandbox
from environments.webapp.tasks import action_for
from tests.tiers import lacks

T = TypeVar("T")
FOLDER = os.environ.get("FLYWHEEL_CUA_GYM_HUB", "")
pytestmark = pytest.mark.skipif(
    not FOLDER, reason=lacks("no applications in FLYWHEEL_CUA_GYM_HUB", "see docs/webapps.md")
)
HUB = WebAppEnvironment("web", WebAppConfig(kind="webapp", folder=FOLDER, browsers=1, pages=1, start_timeout_s=60))
SEEDS = (1, 2, 3)


def leased(template: str, seed: int, work: Callable[[WebAppSandbox], Awaitable[T]]) -> T:
    async def run() -> T:
        async with SandboxPool([HUB]) as pool, pool.lease(HUB.task(template), seed) as sandbox:
            assert isinstance(sandbox, WebAppSandbox)
            return await work(sandbox)

    return asyncio.run(run())


@pytest.mark.parametrize("template", list(HUB.entries))
def test_a_hand_solves_it_and_the_untouched_application_scores_nothing(template: str):
    async def work(sandbox: WebAppSandbox) -> tuple[float, float]:
        before = (await sandbox.verify(WebAppReward())).reward
        assert sandbox.instance is not None
        for move in sandbox.instance.script:
            seen = await sandbox.observe(elements=True)
            await sandbox.perform(action_for(move, seen.elements))
        return before, (await sandbox.verify(WebAppReward())).reward

    assert [leased(template, seed, work) for seed in SEEDS] == [(0.0, 1.0)] * len(SEEDS)


@pytest.mark.parametrize("template", list(HUB.entries))
def test_the_application_s_own_state_after_a_golden_change_scores_one_and_after_a_near_one_nothing(template: str):
    async def work(sandbox: WebAppSandbox) -> tuple[float, list[float]]:
        assert sandbox.instance is not None
        initial, _ = await sandbox.states()
        answer: list[float] = []
        for state in (sandbox.instance.golden(initial), *sandbox.instance.near(initial)):
            await sandbox.put(state)
            answer.append((await sandbox.verify(WebAppReward())).reward)
        return answer[0], answer[1:]

    golden, near = leased(template, SEEDS[0], work)
    assert golden == 1 and not any(near)


@pytest.mark.parametrize("template", [name for name, entry in HUB.entries.items() if entry.deterministic])
def test_the_same_seed_shows_the_same_first_picture(template: str):
    async def work(sandbox: WebAppSandbox) -> Any:
        return (await sandbox.observe()).png

    assert leased(template, SEEDS[0], work) == leased(template, SEEDS[0], work)
