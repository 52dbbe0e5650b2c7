"""MiniWoB++ pages under our hands: what once hung, leaked from trajectory to trajectory, or depended on what came
before."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from environments.chromium.browser import Browser
from environments.chromium.in_page import InPageReward
from environments.chromium.page import Page, PageKind
from environments.environment import Environment
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment, MiniwobSandbox
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from models.explorer import PageExplorer
from models.policy import Context
from schemas.action import Action, Click, Drag, Hotkey, Press, Release, Scroll, Type, Wait
from schemas.failure import ActionFailure
from schemas.observation import Element, Observation, PastStep, elements_json
from tests.parts import miniwob

T = TypeVar("T")
ONE_PAGE = miniwob(pages=1, step_timeout_s=8.0)


def with_pool(work: Callable[[SandboxPool], Awaitable[T]], environment: Environment[Any] = ONE_PAGE) -> T:
    async def run() -> T:
        async with SandboxPool([environment]) as pool:
            return await work(pool)

    return asyncio.run(run())


async def after(pool: SandboxPool, template: str, seed: int, actions: Sequence[Action]) -> Observation:
    async with pool.lease(ONE_PAGE.task(template), seed) as sandbox:
        await sandbox.observe()
        for action in actions:
            await sandbox.perform(action)
        return await sandbox.observe(elements=True)


async def explored(pool: SandboxPool, template: str, seed: int) -> list[tuple[bytes, str, float]]:
    """Pixels, elements and reward of every step of a short random trajectory."""
    task, turns, seen = ONE_PAGE.task(template), (), []
    async with pool.lease(task, seed) as sandbox:
        for _ in range(4):
            shown = await sandbox.observe(elements=True)
            reply = PageExplorer().act([Context(shown.instruction, turns, shown, seed)])[0]
            assert reply.first is not None
            await sandbox.perform(reply.first)
            turns = (*turns, PastStep("", reply.action_text, shown))
            outcome = await sandbox.verify(InPageReward())
            seen.append((shown.png, elements_json(shown.elements), outcome.reward))
    return seen


def kinds(seen: Observation, kind: str) -> list[Element]:
    return [element for element in seen.elements if element.kind == kind]


def click(element: Element) -> Click:
    return Click(x=element.centre[0], y=element.centre[1])


@pytest.mark.slow
def test_a_trajectory_is_the_same_to_the_pixel_whatever_was_done_in_the_page_before():
    templates = ["social-media", "click-menu", "email-inbox", "tic-tac-toe", "use-spinner", "click-collapsible"]

    async def forth_and_back(pool: SandboxPool) -> tuple[list[object], list[object]]:
        forth = [await explored(pool, template, 1) for template in templates]
        back = [await explored(pool, template, 1) for template in reversed(templates)]
        return list(forth), list(reversed(back))

    forth, back = with_pool(forth_and_back)
    assert forth == back


class NavigatedPage(Page):
    """The plain way: the whole page goes to the task's own address."""

    @classmethod
    async def acquire(cls, browser: Browser, kind: PageKind) -> Page:
        page = await super().acquire(browser, kind)
        source = f"{kind.script}; window.world = window"
        await page.send("Page.enable")
        await page.send("Page.addScriptToEvaluateOnNewDocument", source=source)
        return page

    async def open(self, url: str, start: str, before: str = "null") -> Any:
        await self.send("Page.navigate", url=url)
        return await self.evaluate(f"((notes) => {start})({{}})")


class NavigatedSandbox(MiniwobSandbox):
    page = NavigatedPage


class NavigatedEnvironment(MiniwobEnvironment):
    def sandbox(self, browser: Browser) -> Sandbox:
        return NavigatedSandbox(browser, self.config)


@pytest.mark.slow
def test_a_document_in_a_frame_looks_and_acts_as_if_the_whole_page_had_gone_to_it():
    clicked = (
        "click-button",
        "drag-items",
        "email-inbox-star-reply",
        "hover-shape",
        "number-checkboxes",
        "click-tab-2",
    )
    typed_in = ("login-user", "text-editor", "use-autocomplete")
    keys = (Hotkey(key="tab"), Type(content="ab c"), Hotkey(key="ctrl a"), Type(content="d"))

    async def typed(pool: SandboxPool, template: str) -> list[Observation]:
        async with pool.lease(ONE_PAGE.task(template), 1) as sandbox:
            seen = [await sandbox.observe()]
            for key in keys:
                await sandbox.perform(key)
                seen.append(await sandbox.observe(elements=True))
            return seen

    async def everything(pool: SandboxPool) -> Mapping[str, object]:
        return {name: await explored(pool, name, 1) for name in clicked} | {
            name: await typed(pool, name) for name in typed_in
        }

    framed = with_pool(everything)
    navigated = with_pool(everything, NavigatedEnvironment("miniwob", MiniwobConfig(browsers=1, pages=1)))
    assert [name for name in framed if framed[name] != navigated[name]] == []


def test_the_focus_that_tab_has_led_out_of_the_document_comes_back_with_the_next_key():
    out, back = [Hotkey(key="tab"), Hotkey(key="tab"), Type(content="\tc")], [Hotkey(key="shift tab")] * 2

    async def out_and_back(pool: SandboxPool) -> str:
        async with pool.lease(ONE_PAGE.task("enter-text"), 1) as sandbox:
            for action in (*out, *back, Type(content="b")):
                await sandbox.perform(action)
                await sandbox.observe()
            return kinds(await sandbox.observe(elements=True), "text field")[0].value

    assert with_pool(out_and_back) == "b"


def test_a_list_scrolls_after_something_was_dragged_over_it():
    actions = [Drag(x=0.3, y=0.8, to_x=0.3, to_y=0.6), Scroll(x=0.5, y=0.6, direction="down")]

    async def both(pool: SandboxPool) -> tuple[Observation, Observation]:
        return await after(pool, "social-media", 1, actions[:1]), await after(pool, "social-media", 1, actions)

    before, scrolled = with_pool(both)
    assert before.png != scrolled.png


def test_the_picker_of_a_time_field_stays_shut_and_the_page_goes_on():
    async def everywhere(pool: SandboxPool) -> Observation:
        field = kinds(await after(pool, "enter-time", 1, []), "text field")[0]
        left, _, right, _ = field.box
        row = [Click(x=left + (right - left) * part / 8, y=field.centre[1]) for part in range(1, 8)]
        return await after(pool, "enter-time", 1, row)

    assert with_pool(everywhere).png


@pytest.mark.parametrize("template", ["enter-date", "enter-time"])
def test_no_key_opens_a_picker(template: str):
    keys: list[Action] = [Hotkey(key="tab"), Type(content=" "), Hotkey(key="alt down"), Hotkey(key="f4"), Wait()]
    assert with_pool(lambda pool: after(pool, template, 3, keys)).png


def test_a_drop_down_list_opens_inside_the_page_and_an_option_of_it_can_be_chosen():
    async def choose(pool: SandboxPool) -> str:
        first = await after(pool, "choose-list", 2, [])
        opened = await after(pool, "choose-list", 2, [click(kinds(first, "select")[0])])
        option = kinds(opened, "option")[-1]
        chosen = await after(pool, "choose-list", 2, [click(kinds(first, "select")[0]), click(option)])
        assert kinds(chosen, "select")[0].value == option.name
        return option.name

    assert with_pool(choose)


def test_what_is_copied_is_pasted_in_the_same_play_and_in_no_other():
    async def copy_and_paste(pool: SandboxPool) -> tuple[str, str, str]:
        seen = await after(pool, "copy-paste", 1, [])
        source, target = kinds(seen, "textarea")[0], kinds(seen, "text field")[0]
        copy = [click(source), Hotkey(key="ctrl a"), Hotkey(key="ctrl c")]
        paste = [click(target), Hotkey(key="ctrl v")]
        here = kinds(await after(pool, "copy-paste", 1, [*copy, *paste]), "text field")[0].value
        elsewhere = kinds(await after(pool, "copy-paste", 1, paste), "text field")[0].value
        return source.value, here, elsewhere

    source, here, elsewhere = with_pool(copy_and_paste)
    assert here.split() == source.split()
    assert elsewhere == ""


def test_a_held_key_is_let_go_when_the_play_ends():
    async def hold(pool: SandboxPool) -> str:
        field = kinds(await after(pool, "enter-text", 1, []), "text field")[0]
        await after(pool, "enter-text", 1, [click(field), Press(key="ctrl")])
        seen = await after(
            pool, "enter-text", 1, [click(field), Type(content="a"), Press(key="shift"), Release(key="shift")]
        )
        return kinds(seen, "text field")[0].value

    assert with_pool(hold) == "a"


@pytest.mark.parametrize(("content", "value"), [("it's 10% é", "it's 10% é"), ("A-b_c@d.e", "A-b_c@d.e")])
def test_any_character_can_be_typed(content: str, value: str):
    async def work(pool: SandboxPool) -> str:
        field = kinds(await after(pool, "enter-text", 1, []), "text field")[0]
        return kinds(await after(pool, "enter-text", 1, [click(field), Type(content=content)]), "text field")[0].value

    assert with_pool(work) == value


def test_a_page_left_in_the_middle_of_an_action_is_not_used_again():
    async def leave(pool: SandboxPool) -> str:
        field = kinds(await after(pool, "enter-text", 1, []), "text field")[0]
        with pytest.raises(ActionFailure):
            await after(pool, "enter-text", 1, [click(field), Hotkey(key="ctrl hyperspace")])
        return kinds(await after(pool, "enter-text", 1, [click(field), Type(content="a")]), "text field")[0].value

    assert with_pool(leave) == "a"
