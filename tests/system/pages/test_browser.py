"""The browser sandbox with a real headless Chromium."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from environments.chromium.browser import Browser, find_browser
from environments.chromium.in_page import InPageReward
from environments.chromium.page import Page, PageKind
from environments.environment import Environment
from environments.pool import SandboxPool
from schemas.action import Action, CallUser, Click, Hotkey, LongPress, Scroll, Type, Wait
from schemas.failure import ActionFailure, SandboxFailure
from schemas.observation import Observation, Outcome
from tests.parts import miniwob
from tests.processes import left, mentioning

T = TypeVar("T")
MINIWOB = miniwob()


def with_pool(work: Callable[[SandboxPool], Awaitable[T]], environment: Environment[Any] = MINIWOB) -> T:
    async def run() -> T:
        async with SandboxPool([environment]) as pool:
            return await work(pool)

    return asyncio.run(run())


async def look(pool: SandboxPool, template: str, seed: int, elements: bool = False) -> Observation:
    async with pool.lease(MINIWOB.task(template), seed) as sandbox:
        return await sandbox.observe(elements)


async def perform(pool: SandboxPool, template: str, seed: int, actions: list[Action]) -> Outcome:
    async with pool.lease(MINIWOB.task(template), seed) as sandbox:
        await sandbox.observe()
        for action in actions:
            await sandbox.perform(action)
        return await sandbox.verify(InPageReward())


def browsers(parent: int) -> list[psutil.Process]:
    return mentioning("headless", psutil.Process(parent).children(recursive=True))


def test_a_screenshot_is_the_task_area_and_the_instruction_is_its_text():
    seen = with_pool(lambda pool: look(pool, "click-test", 1))
    assert (seen.width, seen.height) == (160, 210)
    assert seen.png.startswith(b"\x89PNG")
    assert seen.instruction == "Click the button."
    assert seen.elements == ()


@pytest.mark.parametrize("template", ["click-test-2", "grid-coordinate", "click-dialog-2"])
def test_the_same_seed_shows_the_same_pixels_and_another_seed_another_page(template: str):
    async def three(pool: SandboxPool) -> list[bytes]:
        return [(await look(pool, template, seed)).png for seed in (3, 3, 4)]

    same, again, other = with_pool(three)
    assert same == again
    assert same != other


def test_elements_are_named_and_lie_on_the_screen():
    seen = with_pool(lambda pool: look(pool, "enter-text", 2, elements=True))
    button = next(element for element in seen.elements if element.kind == "button")
    assert button.name == "Submit"
    assert button.interactive
    assert all(0 <= edge <= 1 for element in seen.elements for edge in element.box)


def test_a_click_on_the_button_solves_click_test_and_a_click_beside_it_does_not():
    async def both(pool: SandboxPool) -> tuple[Outcome, Outcome]:
        seen = await look(pool, "click-test", 5, elements=True)
        x, y = next(element for element in seen.elements if element.kind == "button").centre
        return await perform(pool, "click-test", 5, [Click(x=x, y=y)]), await perform(
            pool, "click-test", 5, [Click(x=0.99, y=0.99)]
        )

    hit, miss = with_pool(both)
    assert hit.reaches(1)
    assert not miss.reaches(1)


def test_text_is_typed_where_the_focus_is():
    async def work(pool: SandboxPool) -> Outcome:
        seen = await look(pool, "enter-text", 7, elements=True)
        field = next(element for element in seen.elements if element.kind == "text field")
        button = next(element for element in seen.elements if element.kind == "button")
        word = seen.instruction.split('"')[1]
        actions = [
            Click(x=field.centre[0], y=field.centre[1]),
            Type(content=word),
            Click(x=button.centre[0], y=button.centre[1]),
        ]
        return await perform(pool, "enter-text", 7, actions)

    assert with_pool(work).reaches(1.0)


@pytest.mark.nightly
def test_the_reward_does_not_depend_on_how_long_the_policy_thinks():
    async def work(pool: SandboxPool) -> Outcome:
        async with pool.lease(MINIWOB.task("click-test"), 5) as sandbox:
            seen = await sandbox.observe(elements=True)
            await asyncio.sleep(11.0)
            x, y = next(element for element in seen.elements if element.kind == "button").centre
            await sandbox.perform(Click(x=x, y=y))
            return await sandbox.verify(InPageReward())

    assert with_pool(work).reaches(1.0)


def test_waiting_long_enough_ends_the_task_without_reward():
    outcome = with_pool(lambda pool: perform(pool, "click-test", 5, [Wait()] * 30))
    assert outcome.done
    assert not outcome.reaches(1.0)


def test_an_action_of_another_platform_is_the_policys_failure():
    with pytest.raises(ActionFailure):
        with_pool(lambda pool: perform(pool, "click-test", 5, [LongPress(x=0.5, y=0.5)]))


def test_scrolling_keys_and_terminal_actions_are_taken():
    actions: list[Action] = [Scroll(x=0.5, y=0.5, direction="down"), Hotkey(key="ctrl a"), CallUser()]
    assert not with_pool(lambda pool: perform(pool, "scroll-text-2", 5, actions)).done


def test_a_browser_killed_in_the_middle_fails_its_lease_only_and_the_next_lease_works():
    async def work(pool: SandboxPool) -> tuple[bool, Observation]:
        failed = False
        try:
            async with pool.lease(MINIWOB.task("click-test"), 1) as sandbox:
                for process in browsers(os.getpid()):
                    with suppress(psutil.NoSuchProcess):  # it may have ended with the one before
                        process.kill()
                await sandbox.observe()
        except SandboxFailure:
            failed = True
        return failed, await look(pool, "click-test", 1)

    failed, seen = with_pool(work)
    assert failed
    assert seen.png


LEAVING = """<!DOCTYPE html><body><input id="field"><div style="height: 900px"></div><script>
window.left = 1;
Array.prototype.left = 1;
window.name = "left";
document.cookie = "left=1";
for (const store of ["localStorage", "sessionStorage"]) try { window[store].left = 1; } catch (error) {}
history.pushState(1, "");
for (const kind of ["keydown", "mousedown"]) addEventListener(kind, () => { parent.heard = kind; });
setInterval(() => { parent.ticks = (parent.ticks || 0) + 1; }, 1);
document.getElementById("field").focus();
scrollTo(0, 500);
</script>"""
LEFT = """[[typeof world.left, [].left, world.Array.prototype.left, world.name, world.document.cookie,
world.history.state, typeof world.localStorage, typeof world.sessionStorage, world.document.activeElement.tagName,
world.scrollY, world.document.hasFocus()].map((one) => one ?? null), window.heard ?? null, ticks]"""


def test_a_document_finds_nothing_of_the_one_before(tmp_path: Path):
    first, second, ground = (tmp_path / name for name in ("first.html", "second.html", "ground.txt"))
    first.write_text(LEAVING)
    second.write_text("<!DOCTYPE html><body style='height: 900px'><p>Nothing")
    ground.write_text("")

    async def one_after_the_other() -> tuple[list[object], list[object]]:
        browser = await Browser.launch(find_browser())
        page = await Page.acquire(browser, PageKind(100, 80, ground.as_uri(), ""))
        await page.open(first.as_uri(), "1")
        await page.screenshot()
        while not await page.evaluate("window.ticks"):
            await asyncio.sleep(0.01)
        before = await page.open(second.as_uri(), LEFT)
        await page.screenshot()
        keys = [page.send("Input.dispatchKeyEvent", type="keyDown", key="a", text="a")]
        buttons = {"x": 50, "y": 40, "button": "left", "clickCount": 1}
        await page.input(
            [
                *keys,
                *(
                    page.send("Input.dispatchMouseEvent", type=f"mouse{how}", **buttons)
                    for how in ("Pressed", "Released")
                ),
            ]
        )
        await asyncio.sleep(0.1)
        after = await page.evaluate(LEFT)
        await browser.end()
        return before, after

    before, after = asyncio.run(one_after_the_other())
    assert before[0] == ["undefined", None, None, "", "", None, "undefined", "undefined", "BODY", 0, True]
    assert after == before


def test_an_idle_page_serves_only_trajectories_of_its_own_size_and_script(tmp_path: Path):
    ground, shown = tmp_path / "ground.txt", tmp_path / "shown.html"
    ground.write_text("")
    shown.write_text("<!DOCTYPE html><body>")
    kinds = [PageKind(100, 80, ground.as_uri(), ""), PageKind(120, 90, ground.as_uri(), "window.marked = 1")]
    seen = "[world.innerWidth, world.innerHeight, typeof world.marked]"

    async def open_each(kinds: list[PageKind]) -> tuple[list[object], int, bool]:
        browser = await Browser.launch(find_browser())
        found, pages = [], []
        try:
            for kind in kinds:
                page = await Page.acquire(browser, kind)
                found.append(await page.open(shown.as_uri(), seen))
                pages.append(page)
                await page.release()
            return found, len(browser.idle), pages[-1] is pages[-2]
        finally:
            await browser.end()

    first, second = kinds
    found, idle, same = asyncio.run(open_each([first, second, first, first]))
    assert found == [[100, 80, "undefined"], [120, 90, "number"], *[[100, 80, "undefined"]] * 2]
    assert idle == 1 and same


PARENT = """
import asyncio
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment
from environments.pool import SandboxPool

async def main():
    miniwob = MiniwobEnvironment("miniwob", MiniwobConfig(browsers=1, pages=1))
    async with SandboxPool([miniwob]) as pool:
        async with pool.lease(miniwob.task("click-test"), 1) as sandbox:
            await sandbox.observe()
            print("ready", flush=True)
            await asyncio.sleep(60)

asyncio.run(main())
"""


def test_no_browser_and_no_profile_is_left_when_the_parent_is_killed_outright(tmp_path: Path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        began = browsers(parent.pid)
        assert began and list(tmp_path.glob("flywheel-browser-*"))
        everything = psutil.Process(parent.pid).children(recursive=True)
        parent.send_signal(signal.SIGKILL)
    assert left((one.pid for one in everything), 10) == []
    assert list(tmp_path.iterdir()) == []


def test_the_practice_page_is_full_of_named_things_and_rewards_a_click_on_the_one_it_names():
    seen = with_pool(lambda pool: look(pool, "practice", 5, elements=True))
    named = seen.instruction.removeprefix('Click on "').removesuffix('".')
    assert len({element.name for element in seen.elements}) >= 6
    (right, *_) = [element for element in seen.elements if element.name == named]
    wrong = next(element for element in seen.elements if element.name not in ("", named))
    for element, reward in ((right, 1.0), (wrong, -1.0)):
        x, y = element.centre
        outcome = with_pool(lambda pool, x=x, y=y: perform(pool, "practice", 5, [Click(x=x, y=y)]))
        assert (outcome.done, outcome.reward) == (True, reward)
