"""A user's own HTML pages as tasks, in a real headless Chromium."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from environments.chromium.in_page import InPageReward
from environments.html.environment import HtmlConfig, HtmlEnvironment, HtmlSandbox
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from schemas.action import Click, Drag, Type
from schemas.config.sections import LakeConfig
from schemas.failure import SandboxFailure, TrajectoryFailure
from schemas.observation import Outcome
from schemas.tables.task import TaskEntry
from storage.lake import Lake

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "your-task.md"
WRITTEN = re.compile(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""A file of the guide: its name, then its text."""
T = TypeVar("T")
FORM = """<!DOCTYPE html>
<link rel="stylesheet" href="form.css">
<script src="words.js"></script>
<form><label>Word <input name="word"></label><button>Save</button> <a href="other.html">Other</a></form>
<script>
let wanted = "", saved = null;
const form = document.querySelector("form");
form.onsubmit = () => { saved = form.elements.word.value; };
window.task = {
  start(seed) { wanted = WORDS[Math.floor(Math.random() * WORDS.length)]; return `Save "${wanted}".`; },
  reward() { return saved === null ? null : Number(saved === wanted); },
};
</script>
"""
BROKEN = {
    "<p>Nothing.</p>": "the page has no window.task.start",
    "<script>window.task = { start: (seed) => 'Wait.' };</script>": "the page has no window.task.reward",
    "<script>window.task = { start() {}, reward() {} };</script>": "returns no instruction",
    "<script>window.task = { start() { throw new Error('no shop'); }, reward() {} };</script>": "start(1) threw Error",
    "<script>window.task = { start: () => 'Go.', reward() { throw 'no till'; } };</script>": "reward() threw no till",
    "<body style='height: 80px' onclick='go = 1'><script>let go; window.task = { start: () => 'Go.', reward: () =>"
    " go ? go.a.b : null };</script>": "window.task.reward() threw TypeError: Cannot read properties of undefined",
    "<script>window.task = { start: () => new Promise(() => null), reward() {} };</script>": "does not finish",
    "<script>shop.open(); window.task = {};</script>": "window.task.start; its first error: ReferenceError: shop",
    "<script>let best = localStorage.best; window.task = {};</script>": "a page has no storage, so no localStorage",
    "<script type=module src=gone.js></script>": "cannot load file:///",
    "<script src=gone.js></script>": "cannot read file:///",
    "<script>window.task = { start: () => 'Wait.', reward: () => 'good' };</script>": "reward is 'good', not a number",
    "<script>window.task = { start: () => 'Wait.', reward: () => 0 / 0 };</script>": "reward is NaN, not a number",
    "<script>window.task = { start: () => 'Wait.', reward: () => -1 / 0 };</script>": "reward is -Infinity, not",
    "<script>window.task = { start: () => 'Wait.', reward: () => 2 };</script>": "reward is 2, not a number in [-1, 1]",
    "<p></p><script>window.task = { start: () => { document.querySelector('p').textContent = crypto.randomUUID();"
    " return 'Read.'; }, reward() {} };</script>": "looks different when it starts again with the same seed",
}
ASIDE = {
    "late.js": "document.querySelector('p').textContent += ' late'; window.words = ['late'];",
    "module.js": "import { word } from './word.js'; document.querySelector('p').textContent += word;",
    "word.js": "export const word = ' imported';",
    "quoted.css": 'p::before { content: "$\'$&$`$$"; }',
}
READ = "window.task = { start: () => document.querySelector('p').textContent, reward() {} };"
WORKING = {
    f"<head><script defer src='late.js'></script></head><p>Read</p><script>{READ}</script>": "Read late",
    f"<head><script type=module src='module.js'></script></head><p>Read</p><script>{READ}</script>": "Read imported",
    f"<head><script type=module>{READ}</script></head><p>Read</p>": "Read",
    f"<!-- <script src=gone.js></script><link rel=stylesheet href=gone> --><p>Read</p><script>{READ}</script>": "Read",
    f"<p>Read</p><script>'<!--';</script><script src=late.js></script><script>{READ} // --></script>": "Read late",
    "<link rel='stylesheet' href='quoted.css'><p></p><script>window.task = { reward() {}, start: () =>"
    " getComputedStyle(document.querySelector('p'), '::before').content };</script>": '"$\'$&$`$$"',
    "<script>window.task = { reward() {}, async start() { for (const ms of [5000, 70]) await new Promise((done) =>"
    " setTimeout(done, ms)); return `After ${performance.now()}`; } };</script>": "After 5070",
}
DRAWN = """<p></p><script>
const number = Math.floor(Math.random() * 1e6);
document.querySelector("p").textContent = number;
window.task = { start: () => `Not ${Math.floor(Math.random() * 1e6)}`, reward() {} };
</script>"""
HASH = """<style>b { display: none } #next:target { display: block }</style>
<a href="#next">Next</a> <a href="#next" target="_blank">Window</a> <a href="?#next">Away</a>
<b id="next" onclick="pressed = true">Press</b><script>
let changes = 0, pressed = false;
onhashchange = () => { changes += 1; };
window.task = { start: () => "Go on.", reward: () => (pressed ? Number(changes === 1) : null) };
</script>"""


def pages(folder: Path, size: tuple[int, int] = (200, 80), /, **texts: str) -> HtmlEnvironment:
    """Those pages in that folder, as tasks."""
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text)
    tasks = {name: TaskEntry(instruction="{}") for name in texts}
    return HtmlEnvironment(
        "mine", HtmlConfig(folder=str(folder), tasks=tasks, width=size[0], height=size[1], browsers=1, pages=1)
    )


def form(folder: Path) -> HtmlEnvironment:
    (folder / "form.css").write_text("input { position: absolute; left: 20px; top: 30px; margin: 0; }")
    (folder / "words.js").write_text('const WORDS = ["red", "green", "blue", "black", "white"];')
    return pages(folder, form=FORM)


def in_sandbox(environment: HtmlEnvironment, seed: int, work: Callable[[Sandbox], Awaitable[T]]) -> T:
    async def leased() -> T:
        template = next(iter(environment.entries))
        async with SandboxPool([environment]) as pool, pool.lease(environment.task(template), seed) as sandbox:
            return await work(sandbox)

    return asyncio.run(leased())


async def click(sandbox: Sandbox, name: str) -> None:
    found = (await sandbox.observe(elements=True)).elements
    x, y = next(one for one in found if one.name == name and one.interactive).centre
    await sandbox.perform(Click(x=x, y=y))


async def saved(sandbox: Sandbox, word: str) -> Outcome:
    await click(sandbox, "Word")
    await sandbox.perform(Type(content=word))
    await click(sandbox, "Save")
    return await sandbox.verify(InPageReward())


def test_a_page_is_set_up_by_its_seed_and_verifies_what_was_done_in_it(tmp_path: Path) -> None:
    environment = form(tmp_path)

    async def asked(sandbox: Sandbox) -> str:
        return (await sandbox.observe()).instruction

    async def right(sandbox: Sandbox) -> tuple[Outcome, Outcome]:
        before = await sandbox.verify(InPageReward())
        return before, await saved(sandbox, (await asked(sandbox)).split('"')[1])

    async def wrong(sandbox: Sandbox) -> Outcome:
        return await saved(sandbox, "pink")

    words = [in_sandbox(environment, seed, asked) for seed in range(8)]
    assert len(set(words)) > 2 and words[:2] == [in_sandbox(environment, seed, asked) for seed in range(2)]
    assert in_sandbox(environment, 3, right) == (Outcome(False, 0.0), Outcome(True, 1.0))
    assert in_sandbox(environment, 3, wrong) == Outcome(True, 0.0)


def test_style_sheets_and_scripts_of_the_folder_are_the_pages_own_and_boxes_are_shares_of_its_screen(
    tmp_path: Path,
) -> None:
    async def look(sandbox: Sandbox) -> tuple[int, int, float]:
        seen = await sandbox.observe(elements=True)
        field = next(one for one in seen.elements if one.kind == "text field")
        return seen.width, seen.height, field.box[1] * seen.height

    width, height, top = in_sandbox(form(tmp_path), 1, look)
    assert (width, height) == (200, 80) and top == 30


def test_a_link_leaves_the_task_open_and_a_page_that_goes_elsewhere_by_itself_is_no_failure_of_the_policy(
    tmp_path: Path,
) -> None:
    async def follow(sandbox: Sandbox) -> Outcome:
        await click(sandbox, "Other")
        return await saved(sandbox, (await sandbox.observe()).instruction.split('"')[1])

    async def leave(sandbox: Sandbox) -> str:
        with pytest.raises(SandboxFailure) as failed:
            for _ in range(20):
                await sandbox.perform(Click(x=0.5, y=0.5))
        return failed.value.reason

    assert in_sandbox(form(tmp_path), 2, follow) == Outcome(True, 1.0)
    (tmp_path / "away").mkdir()
    script = "onclick = () => { location = 'about:blank'; }; window.task = { start: () => 'Stay.', reward() {} };"
    assert "another document" in in_sandbox(pages(tmp_path / "away", leaves=f"<script>{script}</script>"), 1, leave)


def test_a_link_within_the_page_is_followed(tmp_path: Path) -> None:
    async def follow(sandbox: Sandbox) -> Outcome:
        for name in ("Window", "Away"):
            await click(sandbox, name)
            assert "Press" not in [one.name for one in (await sandbox.observe(elements=True)).elements]
        await click(sandbox, "Next")
        await click(sandbox, "Press")
        return await sandbox.verify(InPageReward())

    assert in_sandbox(pages(tmp_path, hash=HASH), 1, follow) == Outcome(True, 1.0)


async def shown(sandbox: Sandbox) -> tuple[str, str]:
    seen = await sandbox.observe(elements=True)
    return seen.instruction, " ".join(one.name for one in seen.elements)


def test_what_a_page_draws_as_it_loads_depends_on_the_seed_and_is_not_drawn_again_by_its_start(tmp_path: Path) -> None:
    environment = pages(tmp_path, drawn=DRAWN)
    first, again, other = (in_sandbox(environment, seed, shown) for seed in (1, 1, 2))
    assert first == again and first[1] != other[1] and first[0] != f"Not {first[1]}"


def test_doctor_says_which_pages_are_the_same_for_every_seed(tmp_path: Path) -> None:
    still = f"<p>Read</p><script>{READ}</script>"
    found = pages(tmp_path, drawn=DRAWN, still=still).probes()[-1].check()
    assert found.ok and found.detail.endswith("check the pages that are the same for every seed: still")


def test_scripts_styles_and_waits_of_a_page_work_as_in_any_browser(tmp_path: Path) -> None:
    for name, aside in ASIDE.items():
        (tmp_path / name).write_text(aside)
    environment = pages(tmp_path, **{f"page{number}": text for number, text in enumerate(WORKING)})

    async def asked() -> list[str]:
        async with SandboxPool([environment]) as pool:
            found = []
            for template in environment.entries:
                async with pool.lease(environment.task(template), 1) as sandbox:
                    found.append((await sandbox.observe()).instruction)
            return found

    assert asyncio.run(asked()) == list(WORKING.values())


def test_a_page_that_throws_is_its_verifiers_failure_and_not_the_sandboxs(tmp_path: Path) -> None:
    start, reward = "(seed) => seed > 1 ? gone() : 'Wait.'", "() => performance.now() && gone()"
    text = f"<script>window.task = {{ start: {start}, reward: {reward} }};"

    async def act(sandbox: Sandbox) -> None:
        await sandbox.perform(Click(x=0.5, y=0.5))

    for seed, what in ((1, "window.task.reward()"), (2, "window.task.start(2)")):
        with pytest.raises(TrajectoryFailure) as failed:
            in_sandbox(pages(tmp_path, mine=f"{text}</script>"), seed, act)
        assert failed.value.boundary == "verifier"
        assert failed.value.reason == f"mine.html: {what} threw ReferenceError: gone is not defined"


@pytest.fixture(scope="module")
def details(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What doctor says of each broken page, of all in one browser."""
    names = {f"page{number:02}": text for number, text in enumerate(BROKEN)}
    found = pages(tmp_path_factory.mktemp("broken"), **names).probes()[-1].check()
    assert not found.ok
    said = re.split(r"(page\d\d)\.html:? ", found.detail)[1:]
    return {
        text: [part for one, part in zip(said[::2], said[1::2], strict=True) if one == name]
        for name, text in names.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("text", list(BROKEN))
def test_doctor_says_what_is_wrong_with_a_page(text: str, details: dict[str, list[str]]) -> None:
    (detail,) = details[text]
    assert BROKEN[text] in detail


def test_doctor_names_every_page_that_is_wrong_in_one_go(tmp_path: Path) -> None:
    text, other = list(BROKEN)[:2]
    environment = pages(tmp_path, one=text, well=DRAWN, two=other)
    found = environment.probes()[-1].check()
    assert not found.ok
    assert f"one.html: {BROKEN[text]}" in found.detail and f"two.html: {BROKEN[other]}" in found.detail
    assert "well.html" not in found.detail and found.hint == "Open it by hand."
    for name in ("one", "two"):
        (tmp_path / f"{name}.html").unlink()
    missing = environment.probes()[0].check().detail
    assert all(f"environments.mine.tasks.{name}`: there is no" in missing for name in ("one", "two"))


def test_a_task_without_a_page_is_refused_before_a_browser_starts(tmp_path: Path) -> None:
    environment = form(tmp_path)
    assert all(probe.check().ok for probe in environment.probes())
    (tmp_path / "form.html").unlink()
    assert "environments.mine.tasks.form" in environment.probes()[0].check().detail
    assert "names no page" in pages(tmp_path).probes()[0].check().detail


@pytest.mark.nightly
def test_the_task_of_the_guide_passes_doctor_and_turns_an_iteration(tmp_path: Path) -> None:
    for name, text in WRITTEN.findall(GUIDE.read_text()):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLYWHEEL_HOME": str(tmp_path / "home")}

    def flywheel(*asked: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "apps.cli", *asked, "lake.min_free_mb=10"]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=280, check=False
        )

    checks = {one["name"]: one for one in json.loads(flywheel("doctor", "--json").stdout)["checks"]}
    assert checks["html: pages start"]["detail"] == "each page starts, and the same seed shows the same screen"
    smaller = ("collect.trajectories_per_task=16", "train.steps_first=4", "train.steps=4", "train.batch=4",
               "train.processes=1",
               "policy.hidden=96", "policy.layers=1", "policy.vision_hidden=64", "policy.vision_layers=1",
               "policy.max_new_tokens=12")  # fmt: skip
    measured = ("evaluate.seeds=2", "evaluate.explorer_seeds=6", "evaluate.untrained_seeds=1")
    done = flywheel("run", "--iterations", "1", *smaller, *measured)
    assert done.returncode == 0, done.stderr
    rows = Lake.open(LakeConfig(uri=str(tmp_path / "lake")), create=False).read("trajectories").to_pylist()
    assert {row["task_id"] for row in rows} == {"html/colour"} and not any(row["failure_boundary"] for row in rows)
    assert {row["success"] for row in rows} == {True, False}


LOOPS = {
    "at a click": "<body onclick='for (;;);'><script>window.task = { start: () => 'Go.', reward: () => null };"
    "</script>",
    "again and again": "<body onclick='setInterval(() => { for (;;); }, 1)'><script>window.task = { start: () => 'Go.',"
    " reward: () => null };</script>",
}
LOOPS["at every key"] = LOOPS["at a click"].replace("onclick=", "onkeydown=")
STILL = "<body><script>window.task = { start: () => 'Go.', reward: () => null };</script>"


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_page_that_loops_without_end_takes_no_neighbour_in_its_browser_with_it(tmp_path: Path, loop: str) -> None:
    (tmp_path / "endless.html").write_text(LOOPS[loop])
    (tmp_path / "still.html").write_text(STILL)
    tasks = {name: TaskEntry(instruction="{}") for name in ("endless", "still")}
    mine = HtmlEnvironment("mine", HtmlConfig(folder=str(tmp_path), tasks=tasks, browsers=1, pages=2, step_timeout_s=3))

    async def run() -> str:
        async with SandboxPool([mine]) as pool:
            async with pool.lease(mine.task("still"), 1) as neighbour:
                with pytest.raises(SandboxFailure) as hung:
                    async with pool.lease(mine.task("endless"), 1) as sandbox:
                        for _ in range(3):
                            await sandbox.perform(Click(x=0.5, y=0.5))
                            await sandbox.perform(Type(content="hello" * 60))
                            await sandbox.observe()
                await neighbour.perform(Click(x=0.5, y=0.5))
                await neighbour.observe()
            async with pool.lease(mine.task("still"), 1) as sandbox:
                await sandbox.observe()
            assert pool.metrics.restarts == 0
            return hung.value.reason

    assert "within 3 s" in asyncio.run(run())


DRAGGED = """<body style="margin: 0"><style>div, a, img { position: absolute; width: 40px; height: 40px }
#here { left: 10px; top: 10px; background: teal } #there { left: 100px; top: 120px; background: silver }</style>"""
SOURCE = 'id="here" draggable="true"'
GIVEN = "event.dataTransfer.setData('text/plain', 'mine'); event.dataTransfer.effectAllowed = 'move'"
TAKEN = "event.preventDefault(); got = event.dataTransfer.getData('text')"
REWARD = "window.task = { start: () => 'Drag it.', reward: () => (got === null ? null : Number(got === 'mine')) };"
DRAGS = {
    "attributes": f'<div {SOURCE} ondragstart="{GIVEN}"></div>'
    f'<div id="there" ondragover="event.preventDefault()" ondrop="{TAKEN}"></div>'
    f"<script>let got = null; {REWARD}</script>",
    "listeners": f"<div {SOURCE}></div><div id='there'></div><script>let got = null; {REWARD}"
    f"document.addEventListener('dragstart', (event) => {{ {GIVEN} }});"
    "there.addEventListener('dragenter', (event) => event.preventDefault());"
    f"there.addEventListener('dragover', (event) => event.preventDefault());"
    f"there.addEventListener('drop', (event) => {{ {TAKEN} }});</script>",
    "a link that the page did not mark": "<a id='here' href='#'>Go</a><div id='there'></div>"
    f"<script>let got = null; {REWARD} here.ondragstart = (event) => {{ {GIVEN} }};"
    f"there.ondragover = (event) => event.preventDefault(); there.ondrop = (event) => {{ {TAKEN} }};</script>",
    "the pointer": f"<div id='here'></div><div id='there'></div><script>let got = null, held = false; {REWARD}"
    "here.onmousedown = () => { held = true; };"
    "onmouseup = (event) => { if (held && event.target === there) got = 'mine'; };</script>",
    "a link in a page that follows the pointer": "<a id='here' href='#'>Go</a><div id='there'></div><script>"
    f"let got = null; {REWARD} onmouseup = (event) => {{ if (event.target === there) got = 'mine'; }};</script>",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAGS)
def test_what_a_page_lets_be_dragged_arrives_with_its_data_from_anywhere_in_it_to_anywhere_in_the_target(
    tmp_path: Path, kind: str
) -> None:
    environment = pages(tmp_path, (160, 210), dragged=DRAGGED + DRAGS[kind])

    async def dragged(sandbox: Sandbox, start: tuple[int, int], end: tuple[int, int]) -> tuple[Outcome, Outcome]:
        before = await sandbox.verify(InPageReward())
        await sandbox.perform(Drag(x=start[0] / 160, y=start[1] / 210, to_x=end[0] / 160, to_y=end[1] / 210))
        return before, await sandbox.verify(InPageReward())

    for start, end in (((12, 12), (138, 158)), ((30, 30), (120, 140)), ((48, 14), (102, 122))):
        found = in_sandbox(environment, 1, lambda sandbox, ends=(start, end): dragged(sandbox, *ends))
        assert found == (Outcome(False, 0.0), Outcome(True, 1.0))


def test_a_native_drag_has_the_events_of_the_standard_in_their_order_and_leaves_the_pointer_free(
    tmp_path: Path,
) -> None:
    """HTML Living Standard, section 6.11.5: the events of a drag-and-drop operation."""
    script = """<script>const heard = [];
    for (const kind of ["dragstart", "dragenter", "dragover", "drop", "dragend", "mouseup", "click"])
      document.addEventListener(kind, (event) => { heard.push(`${kind} ${event.target.id}`); });
    there.ondragover = (event) => event.preventDefault();
    there.ondrop = (event) => event.preventDefault();
    window.task = { start: () => "Drag it.", reward: () => heard.at(-1) === "click here" ? heard.length / 100 : null };
    </script>"""
    environment = pages(tmp_path, (160, 210), dragged=f"{DRAGGED}<div {SOURCE}></div><div id='there'></div>{script}")

    async def drag(sandbox: Sandbox) -> tuple[list[str], Outcome]:
        assert isinstance(sandbox, HtmlSandbox)
        await sandbox.perform(Drag(x=30 / 160, y=30 / 210, to_x=120 / 160, to_y=140 / 210))
        heard = await sandbox._page.evaluate("world.eval('heard')")  # pyright: ignore[reportPrivateUsage]
        await sandbox.perform(Click(x=30 / 160, y=30 / 210))
        return heard, await sandbox.verify(InPageReward())

    heard, clicked = in_sandbox(environment, 1, drag)
    own = [one for one in dict.fromkeys(heard) if one.endswith(("here", "there"))]
    assert [one for one in own if one.endswith(" there")] == ["dragenter there", "dragover there", "drop there"]
    assert own[0] == "dragstart here" and heard[-2:] == ["drop there", "dragend here"] and clicked.done


BOOLEANS = {
    "pressed": (False, True, 1.0),
    "pressed ? 0 : undefined": (False, True, 0.0),
    "pressed && 0.5": (False, True, 0.5),
}


@pytest.mark.parametrize("reward", BOOLEANS)
def test_a_reward_of_false_leaves_the_task_open_and_one_of_true_is_a_success(tmp_path: Path, reward: str) -> None:
    script = f"let pressed = false; window.task = {{ start: () => 'Press.', reward: () => {reward} }};"
    page = (
        f"<button onclick='pressed = true' style='width: 150px; height: 200px'>Press</button><script>{script}</script>"
    )
    environment = pages(tmp_path, booleans=page)

    async def press(sandbox: Sandbox) -> tuple[bool, bool, float]:
        before = await sandbox.verify(InPageReward())
        await click(sandbox, "Press")
        after = await sandbox.verify(InPageReward())
        return before.done, after.done, after.reward

    assert in_sandbox(environment, 1, press) == BOOLEANS[reward]


SORTED = """<body style="margin: 0"><style>li { height: 30px; width: 120px } ul { margin: 0 }</style>
<ul id="list"><li>a<li>b<li>c<li>d</ul><script>
let moved = null;
for (const item of list.children) item.draggable = true;
list.addEventListener("dragstart", (event) => { const item = event.target; setTimeout(() => { moved = item; }, 0); });
list.addEventListener("dragover", (event) => {
  event.preventDefault();
  const over = event.target.closest("li");
  if (moved && over && over !== moved) requestAnimationFrame(() => over.after(moved));
});
window.task = { start: () => "Sort.", reward: () => list.textContent.replace(/\\s/g, "") === "bcda" };
</script>"""


def test_a_list_that_sets_timers_while_it_is_sorted_is_sorted_and_the_drag_takes_a_quarter_of_a_second(
    tmp_path: Path,
) -> None:
    """As SortableJS 1.15.6 (`_nextTick` in `_onDragStart`) and html5sortable 0.14.0 do."""
    environment = pages(tmp_path, (160, 210), sorted=SORTED)

    async def sort(sandbox: Sandbox) -> tuple[float, Outcome]:
        assert isinstance(sandbox, HtmlSandbox)
        clock = "world.performance.now()"
        before = await sandbox._page.evaluate(clock)  # pyright: ignore[reportPrivateUsage]
        await sandbox.perform(Drag(x=0.4, y=15 / 210, to_x=0.4, to_y=110 / 210))
        after = await sandbox._page.evaluate(clock)  # pyright: ignore[reportPrivateUsage]
        return after - before, await sandbox.verify(InPageReward())

    assert in_sandbox(environment, 1, sort) == (250, Outcome(True, 1.0))


HELD = """<body style="margin: 0"><style>li { height: 30px; width: 120px } ul { margin: 0 }</style>
<ul id="list"><li>a<li>b<li>c<li>d</ul><script>
let moved = null, held = null;
list.addEventListener("pointerdown", (event) => { held = setTimeout(() => { moved = event.target; }, 100); });
list.addEventListener("pointermove", (event) => {
  if (!moved) { clearTimeout(held); return; }
  const over = document.elementFromPoint(event.clientX, event.clientY).closest("li");
  if (over && over !== moved) over.after(moved);
});
list.addEventListener("pointerup", () => { clearTimeout(held); moved = null; });
window.task = { start: () => "Sort.", reward: () => list.textContent.replace(/\\s/g, "") === "bcda" };
</script>"""


def test_a_list_that_waits_before_a_drag_begins_is_sorted(tmp_path: Path) -> None:
    """As SortableJS 1.15.6 with `delay: 100`, which takes a move before that for a scroll."""
    environment = pages(tmp_path, (160, 210), held=HELD)

    async def sort(sandbox: Sandbox) -> Outcome:
        await sandbox.perform(Drag(x=0.4, y=15 / 210, to_x=0.4, to_y=110 / 210))
        return await sandbox.verify(InPageReward())

    assert in_sandbox(environment, 1, sort) == Outcome(True, 1.0)
