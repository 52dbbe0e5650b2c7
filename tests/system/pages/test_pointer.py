"""What the pointer does in a real headless Chromium: it hovers, clicks with each button, and drags by parts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from environments.chromium.in_page import InPageReward
from environments.html.environment import HtmlConfig, HtmlEnvironment, HtmlSandbox
from environments.pool import SandboxPool
from schemas import action as act
from schemas.action import Action
from schemas.failure import ActionFailure
from schemas.tables.task import TaskEntry

PAGE = """<!DOCTYPE html><style>
body { margin: 0; font: 16px sans-serif }
body > * { position: absolute; left: 0; margin: 0; width: 200px; height: 30px }
#box:hover { background: red }
</style>
<p id="text" style="top: 0">One two. Three four.</p>
<div id="box" style="top: 40px">Box</div>
<a id="link" style="top: 80px" href="other.html" target="_blank">Link</a>
<div id="thing" draggable="true" style="top: 120px">Thing</div>
<div id="bin" style="top: 160px">Bin</div>
<script>
const seen = [], wheels = [];
let late = false, dropped = false;
const saw = (event) => seen.push(`${event.type} ${event.target.id} ${event.button} ${event.buttons} ${event.detail}`);
for (const kind of ["mousedown", "mouseup", "click", "auxclick", "mousemove"]) addEventListener(kind, saw);
addEventListener("wheel", (event) => wheels.push(event.clientX, event.clientY, event.deltaY));
const bin = document.getElementById("bin");
bin.ondragover = (event) => event.preventDefault();
bin.ondrop = () => { dropped = true; };
window.task = {
  start() { setTimeout(() => { late = true; }, 2500); return "Point."; },
  reward() { return Number(WANTED); },
};
</script>"""
BOX, LINK, THING, BIN = (0.5, 0.275), (0.5, 0.475), (0.5, 0.675), (0.5, 0.875)


def at(place: tuple[float, float]) -> dict[str, Any]:
    return {"x": place[0], "y": place[1]}


def environment_of(folder: Path, wanted: str) -> HtmlEnvironment:
    (folder / "page.html").write_text(PAGE.replace("WANTED", wanted))
    (folder / "other.html").write_text("<p>Other</p>")
    config = HtmlConfig(folder=str(folder), tasks={"page": TaskEntry(instruction="{}")}, width=200, height=200)
    return HtmlEnvironment("mine", config.model_copy(update={"browsers": 1, "pages": 1}))


def played(folder: Path, wanted: str, *trajectories: Sequence[Action], asked: str = "null") -> tuple[float | None, Any]:
    """The reward of the last trajectory, and the value of a JavaScript expression at its end."""
    environment = environment_of(folder, wanted)

    async def run() -> tuple[float | None, Any]:
        reward, value = None, None
        async with SandboxPool([environment]) as pool:
            for actions in trajectories:
                async with pool.lease(environment.task("page"), 1) as sandbox:
                    assert isinstance(sandbox, HtmlSandbox)
                    for action in actions:
                        await sandbox.perform(action)
                    reward = (await sandbox.verify(InPageReward())).reward
                    value = await sandbox._page.evaluate(f"world.eval({asked!r})")
        return reward, value

    return asyncio.run(run())


def test_a_move_hovers_and_presses_no_button(tmp_path: Path) -> None:
    hovers = "document.querySelector('#box:hover') && seen.every((one) => one.startsWith('mousemove box'))"
    assert played(tmp_path, hovers, [act.Move(**at(BOX))])[0] == 1.0
    assert played(tmp_path, hovers, [act.Move(**at(BOX)), act.Move(**at(BIN))])[0] == 0.0


def test_a_middle_click_is_one_of_the_middle_button_and_opens_no_tab(tmp_path: Path) -> None:
    _, seen = played(tmp_path, "true", [act.MiddleSingle(**at(LINK))], asked="seen")
    assert seen == ["mousemove link 0 0 0", "mousedown link 1 4 1", "mouseup link 1 0 1", "auxclick link 1 0 1"]


def test_a_middle_click_leaves_one_page_in_the_browser(tmp_path: Path) -> None:
    environment = environment_of(tmp_path, "true")

    async def run() -> list[int]:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("page"), 1) as sandbox:
            assert isinstance(sandbox, HtmlSandbox)
            pages = list[int]()
            for action in (act.Wait(), act.MiddleSingle(**at(LINK)), act.Wait()):
                await sandbox.perform(action)
                found = await sandbox._browser.connection.send("Target.getTargets")
                pages.append(sum(one["type"] == "page" for one in found["targetInfos"]))
            return pages

    pages = asyncio.run(run())
    assert len(set(pages)) == 1


def test_a_triple_click_selects_a_paragraph(tmp_path: Path) -> None:
    selected = "getSelection().toString().trim() === 'One two. Three four.'"
    assert played(tmp_path, selected, [act.TripleClick(x=0.1, y=0.05)])[0] == 1.0
    assert played(tmp_path, selected, [act.LeftDouble(x=0.1, y=0.05)])[0] == 0.0
    assert played(tmp_path, selected, [act.Move(x=0.1, y=0.05), act.TripleClick()])[0] == 1.0
    word = "getSelection().toString().trim() === 'One'"
    for double in ([act.LeftDouble(x=0.1, y=0.05)], [act.Move(x=0.1, y=0.05), act.LeftDouble()]):
        assert played(tmp_path, word, double)[0] == 1.0


@pytest.mark.parametrize(
    "ends",
    [[act.MouseUp(**at(BIN))], [act.Move(**at(BIN)), act.MouseUp()]],
    ids=["released at a place", "moved, then released"],
)
def test_a_drag_by_parts_drops_what_it_holds(tmp_path: Path, ends: list[Action]) -> None:
    assert played(tmp_path, "dropped", [act.MouseDown(**at(THING)), *ends])[0] == 1.0
    moved = [act.Move(**at(THING)), act.MouseDown(), act.Wait(), *ends]
    assert played(tmp_path, "dropped", moved)[0] == 1.0


def test_a_button_stays_down_while_the_pointer_moves(tmp_path: Path) -> None:
    actions = [act.MouseDown(**at(BOX), button="right"), act.Move(x=0.6, y=0.3), act.MouseUp(button="right")]
    _, seen = played(tmp_path, "true", actions, asked="seen")
    assert seen[:2] == ["mousemove box 0 0 0", "mousedown box 2 2 1"] and "mouseup box 2 0 1" in seen
    assert all(one.split()[3] == "2" for one in seen[2:-2] if one.startswith("mousemove")) and len(seen) > 5


def test_a_scroll_without_a_place_is_where_the_pointer_is(tmp_path: Path) -> None:
    """Before the first action at a place, it is in the middle of the page. A page sees a wheel by its next input."""
    plain = act.Scroll(direction="down")
    _, wheels = played(tmp_path, "true", [plain, act.Move(**at(BOX)), plain, plain], asked="wheels")
    assert wheels[:2] == [100, 100] and wheels[3:5] == [100, 55] and wheels[2] == wheels[5] > 0


@pytest.mark.parametrize("button", ["left", "middle", "right"])
def test_a_held_button_is_released_at_the_end_of_its_trajectory(tmp_path: Path, button: act.Button) -> None:
    environment = environment_of(tmp_path, "true")

    async def run() -> tuple[list[str], list[str]]:
        async with SandboxPool([environment]) as pool:
            async with pool.lease(environment.task("page"), 1) as sandbox:
                assert isinstance(sandbox, HtmlSandbox)
                page = sandbox._page
                await sandbox.perform(act.MouseDown(**at(BOX), button=button))
            before = await page.evaluate("world.eval('seen')")
            async with pool.lease(environment.task("page"), 1) as sandbox:
                await sandbox.perform(act.Move(**at(BOX)))
                return before, await page.evaluate("world.eval('seen')")

    number = {"left": 0, "middle": 1, "right": 2}[button]
    before, after = asyncio.run(run())
    assert f"mouseup box {number} 0 1" in before
    assert after == ["mousemove box 0 0 0"]


def test_a_button_at_the_pointer_needs_a_pointer_that_an_action_has_placed(tmp_path: Path) -> None:
    for action in (act.MouseDown(), act.MouseUp()):
        with pytest.raises(ActionFailure, match=f"{action.type} without a place"):
            played(tmp_path, "true", [action])


def test_a_wait_lasts_as_long_as_it_asks_for(tmp_path: Path) -> None:
    assert played(tmp_path, "late", [act.Wait()])[0] == 0.0
    assert played(tmp_path, "late", [act.Wait(seconds=2.4)])[0] == 0.0
    assert played(tmp_path, "late", [act.Wait(seconds=2.5)])[0] == 1.0
