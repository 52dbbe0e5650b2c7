"""Generated pages in a real Chromium: the solution of every layout and widget is rewarded, and nothing else is."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from environments.pages import catalog
from environments.pages.environment import PagesConfig, PagesEnvironment, PagesSandbox
from environments.pages.fonts import installed
from environments.pages.solution import MOST_ACTIONS, PageKey, Rendered, key_of, play
from environments.pool import SandboxPool
from schemas.action import TYPES, action_of
from schemas.failure import FlywheelError
from schemas.observation import elements_of
from tests.tiers import NIGHTLY, lacks

T = TypeVar("T")
LAYOUTS = (*catalog.LAYOUTS, *catalog.LAYOUTS_HELD_OUT)
BY_DAY = ("form", "wizard", "split-panes", "more", "drawer", "scattered")


@pytest.fixture(scope="module", autouse=True)
def with_fonts() -> None:
    try:
        installed()
    except FlywheelError as error:
        pytest.skip(lacks("no fonts", error.hint))


def pages() -> PagesEnvironment:
    return PagesEnvironment("pages", PagesConfig(browsers=2, pages=1, sized=False))


def page(layout: str, seed: int) -> PageKey:
    return PageKey("test" if layout in catalog.LAYOUTS_HELD_OUT else "train", layout, seed)


def within(work: Callable[[SandboxPool, PagesEnvironment], Awaitable[T]]) -> T:
    async def run() -> T:
        environment = pages()
        async with SandboxPool([environment]) as pool:
            return await work(pool, environment)

    return asyncio.run(run())


def played(keys: list[PageKey]) -> list[list[Rendered]]:
    """The screens of these pages."""

    async def all_of(pool: SandboxPool, environment: PagesEnvironment) -> list[list[Rendered]]:
        return list(await asyncio.gather(*(play(pool, environment, key, "test") for key in keys)))

    return within(all_of)


def check(screens: list[Rendered]) -> None:
    """What holds for every page: `play` raises for a solution without its reward."""
    rows = [one.row for one in screens]
    assert [row.step for row in rows] == list(range(len(rows))) and 2 <= len(rows) <= MOST_ACTIONS + 1
    assert [row.reward for row in rows] == [None] * (len(rows) - 1) + [1.0]
    assert rows[-1].action == rows[-1].change == "" and rows[-1].target == -1
    for one in screens:
        row, elements = one.row, elements_of(one.row.elements)
        assert row.sha256 == hashlib.sha256(one.png).hexdigest()
        assert elements or row.step
        for text, (left, top, right, bottom), px, centres in json.loads(row.lines):
            assert text.strip() == text and len(centres) == len(text) and px >= 9
            assert centres == sorted(centres) and left <= centres[0] and centres[-1] <= right and top < bottom
            assert centres[0] >= 0 and centres[-1] <= row.width and bottom > 0 and top < row.height
        assert all(int(at) < len(elements) for at in json.loads(row.states))
        if row.action:
            action = json.loads(row.action)
            assert action["type"] in TYPES and row.change
            if row.target >= 0 and "x" in action:
                box = elements[row.target].box
                assert box[0] <= action["x"] <= box[2] and box[1] <= action["y"] <= box[3], (row.page_id, row.step)


def test_solutions_are_rewarded_and_every_screen_is_described() -> None:
    layouts = LAYOUTS if NIGHTLY else BY_DAY
    keys = [page(layout, seed) for layout in layouts for seed in range(8 if NIGHTLY else 1)]
    keys.sort(key=lambda key: key.size)
    for screens in played(keys):
        check(screens)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_every_widget_is_asked_for_and_solved() -> None:
    wanted = {*catalog.WIDGETS, *catalog.WIDGETS_HELD_OUT} - {"progress"}  # a bar that nothing can be asked of

    async def solved(pool: SandboxPool, environment: PagesEnvironment) -> set[str]:
        found: set[str] = set()
        for seed in range(100, 200):
            for layout in ("form", "property-grid"):
                key = page(layout, seed)
                async with pool.lease(environment.task(layout), seed) as sandbox:
                    assert isinstance(sandbox, PagesSandbox)
                    asked = set((await sandbox.about())["asked"])
                if asked - found:
                    check(await play(pool, environment, key, "test"))
                    found |= asked
            if found == wanted:
                break
        return found

    assert within(solved) == wanted


@pytest.mark.slow
def test_a_wrong_action_gets_no_reward() -> None:
    keys = [page(layout, seed) for layout in ("form", "survey", "player") for seed in range(4)]

    async def last_first(pool: SandboxPool, environment: PagesEnvironment) -> list[float]:
        rewards: list[float] = []
        for key in sorted(keys, key=lambda key: key.size):
            whole = await play(pool, environment, key, "test")
            last = json.loads(whole[-2].row.action)
            moved = any(json.loads(one.row.action)["type"] == "scroll" for one in whole[:-1])
            if len(whole) < 3 or moved or last["type"] != "click":
                continue
            async with pool.lease(environment.task(key.layout), key.seed) as sandbox:
                await sandbox.perform(action_of(last))
                rewards.append((await sandbox.verify(environment.reward)).reward)
        return rewards

    rewards = within(last_first)
    assert len(rewards) >= 3 and set(rewards) == {0.0}


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_in_another_browser() -> None:
    keys = [key_of(split, number, 3) for split in ("train", "test") for number in range(20 if NIGHTLY else 2)]
    assert played(keys) == played(list(reversed(keys)))[::-1]
