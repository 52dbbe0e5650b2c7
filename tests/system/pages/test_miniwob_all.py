"""MiniWoB++ pages by BrowserGym's rules: the screen, the instruction, and the reward."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from PIL import Image

from environments.chromium.in_page import InPageReward
from environments.miniwob.browsergym import HEIGHT, WIDTH, BrowserGymEnvironment, BrowserGymSandbox
from environments.miniwob.environment import MiniwobConfig
from environments.pool import SandboxPool
from schemas.action import Click
from schemas.observation import Observation, Outcome
from tests.parts import miniwob

T = TypeVar("T")
RULES = BrowserGymEnvironment("miniwob-all", MiniwobConfig(browsers=1, pages=1))
LINK = "world.document.querySelector('#area').innerHTML = '<a href=\"#\" style=\"font-size: 60px\">link</a>'"


def in_page(template: str, seed: int, work: Callable[[BrowserGymSandbox], Awaitable[T]]) -> T:
    async def run() -> T:
        async with SandboxPool([RULES]) as pool, pool.lease(RULES.task(template), seed) as sandbox:
            assert isinstance(sandbox, BrowserGymSandbox)
            return await work(sandbox)

    return asyncio.run(run())


async def shown(sandbox: BrowserGymSandbox) -> tuple[Observation, str]:
    """The first screen, and the text that the page shows above its task."""
    return await sandbox.observe(), await sandbox._page.evaluate("world.document.querySelector('#query').textContent")


async def published(template: str, seed: int) -> str:
    """The instruction of the page by MiniWoB++'s own rules."""
    own = miniwob()
    async with SandboxPool([own]) as pool, pool.lease(own.task(template), seed) as sandbox:
        return (await sandbox.observe()).instruction


def test_the_screen_has_the_viewport_of_browsergym_and_no_instruction() -> None:
    seen, text = in_page("click-button", 1, shown)
    assert Image.open(io.BytesIO(seen.png)).size == (WIDTH, HEIGHT) == (332, 214)
    assert text == "" and seen.instruction == asyncio.run(published("click-button", 1))
    band = Image.open(io.BytesIO(seen.png)).convert("RGB").crop((0, 0, 160, 50))
    assert band.getcolors() == [(160 * 50, (255, 255, 0))]


@pytest.mark.parametrize(
    ("template", "instruction"),
    [
        ("click-menu-2", 'find and click on the item with the "ui-icon-stop" icon.'),
        ("use-colorwheel-2", "Select the following color #"),
    ],
)
def test_a_picture_of_the_instruction_has_a_name(template: str, instruction: str) -> None:
    assert instruction in in_page(template, 2, shown)[0].instruction


ENDINGS = {
    "core.endEpisode(1, true)": Outcome(True, 1.0),
    "core.endEpisode(0.2)": Outcome(True, 1.0),
    "core.endEpisode(0)": Outcome(True, 0.0),
    "core.endEpisode(-1, false, 'timed out')": Outcome(True, 0.0),
    "__page.advance(999000)": Outcome(False, 0.0),
    "__page.advance(1000000)": Outcome(True, 0.0),
}


def test_any_positive_raw_reward_is_a_success_and_a_time_out_is_none() -> None:
    async def run() -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        async with SandboxPool([RULES]) as pool:
            for ending in ENDINGS:
                async with pool.lease(RULES.task("click-button"), 1) as sandbox:
                    assert isinstance(sandbox, BrowserGymSandbox)
                    await sandbox._page.evaluate(f"world.{ending}")
                    await sandbox._advance(0)
                    found[ending] = await sandbox.verify(InPageReward())
        return found

    assert asyncio.run(run()) == ENDINGS


def test_a_link_that_changes_the_address_ends_the_episode_without_a_reward() -> None:
    async def clicked(sandbox: BrowserGymSandbox) -> Outcome:
        await sandbox.observe()
        await sandbox._page.evaluate(LINK)
        await sandbox.perform(Click(x=60 / WIDTH, y=90 / HEIGHT))
        return await sandbox.verify(InPageReward())

    assert in_page("click-button", 1, clicked) == Outcome(True, 0.0)
