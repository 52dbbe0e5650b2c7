"""A real desktop: what reaches X, what is shown, what a task begins with, and what is left when it ends."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from environments.desktop.boxed import AskFailed, RunningDesktop
from environments.desktop.environment import TASKS, DesktopConfig, DesktopEnvironment
from environments.desktop.sandbox import DesktopReward, DesktopSandbox, begin, events_of
from environments.leased import leased_now
from environments.pool import SandboxPool
from environments.seccomp import SOCKETS
from schemas import action as act
from schemas.failure import SandboxFailure
from tests.desktops import CONFIG, IN_NAMESPACES, ON_A_DESKTOP, on_a_box, witness, witnessed
from tests.fixtures.solutions import SCRIPTS, left_behind, processes, solved
from tests.guides import told

pytestmark = ON_A_DESKTOP
ENVIRONMENT = DesktopEnvironment("desktop", CONFIG)
FEW = ("write-note", "count-lines", "rename-file", "calculate", "turn-picture", "move-window")
EACH = [pytest.param(one, marks=() if one in FEW else pytest.mark.nightly) for one in TASKS]
"""One of each program."""
TEXT = "aZ 09 <>|&~ {[(\\'\"`^)]} @€ äß é 漢字 привет ≠"


async def perform(box: RunningDesktop, *actions: act.Action, least: int = 2) -> list[list[object]]:
    """What a witness in the desktop says of these actions, which press or let go of something at least so often."""
    for action in actions:
        await box.ask("input", events=events_of(action, CONFIG.width, CONFIG.height), rest_s=1)
    return await witnessed(box, least)


def keysyms(text: str) -> list[int]:
    return [ord(one) if ord(one) < 0x100 else 0x01000000 | ord(one) for one in text]


def test_each_action_reaches_x_as_pointer_and_key_events_and_text_of_any_script_as_keys() -> None:
    async def work(box: RunningDesktop) -> None:
        await witness(box)
        await perform(box, act.Click(x=0.3, y=0.3))
        x, y = int(0.4 * CONFIG.width), int(0.5 * CONFIG.height)
        clicked = await perform(box, act.Click(x=0.4, y=0.5))
        assert [[kind, *rest[:3]] for kind, *rest in clicked if kind != "move"] == [
            ["button", 1, x, y],
            ["button up", 1, x, y],
        ]
        doubled = await perform(box, act.LeftDouble(x=0.35, y=0.45), least=4)
        presses = [one for one in doubled if one[0] == "button"]
        assert len(presses) == 2 and presses[1][4] - presses[0][4] < 250  # type: ignore[operator]
        right = await perform(box, act.RightSingle(x=0.4, y=0.4))
        assert [one[1] for one in right if one[0] == "button"] == [3]
        long = [one for one in await perform(box, act.LongPress(x=0.4, y=0.4)) if "button" in str(one[0])]
        assert long[1][4] - long[0][4] >= 900  # type: ignore[operator]
        for direction, button in (("up", 4), ("down", 5), ("left", 6), ("right", 7)):
            turned = await perform(box, act.Scroll(x=0.4, y=0.4, direction=direction), least=10)  # type: ignore[arg-type]
            assert [one[1] for one in turned if one[0] == "button"] == [button] * 5
        drag = await perform(box, act.Drag(x=0.3, y=0.4, to_x=0.5, to_y=0.5))
        kinds = [one[0] for one in drag]
        held = kinds[kinds.index("button") : kinds.index("button up")]
        assert held.count("move") >= 4
        assert drag[-1][:4] == ["button up", 1, int(0.5 * CONFIG.width), int(0.5 * CONFIG.height)]
        chord = await perform(box, act.Hotkey(key="ctrl shift s"), least=6)
        assert chord[0][:2] == ["key", 0xFFE3]
        assert [one[0] for one in chord] == ["key"] * 3 + ["key up"] * 3
        held_keys = await perform(box, act.Press(key="shift"), act.Hotkey(key="f5"), act.Release(key="shift"), least=4)
        assert [one[0] for one in held_keys] == ["key", "key", "key up", "key up"]
        typed = await perform(box, act.Type(content=f"{TEXT}\n"), least=2 * len(TEXT) + 2)
        written = [one[1] for one in typed if one[0] == "key" and one[1] != 0xFFE1]
        assert written == [*keysyms(TEXT), 0xFF0D]
        assert await perform(box, act.Wait(), least=0) == []

    on_a_box(work)


@pytest.mark.slow
def test_more_different_characters_than_a_keyboard_has_keys_all_arrive() -> None:
    text = "".join(chr(code) for code in range(0x4E00, 0x4E00 + 100))

    async def work(box: RunningDesktop) -> None:
        await witness(box)
        await perform(box, act.Click(x=0.3, y=0.3))
        typed = await perform(box, act.Type(content=text), least=2 * len(text))
        assert [one[1] for one in typed if one[0] == "key"] == keysyms(text)

    on_a_box(work)


def test_clicks_of_two_actions_at_one_place_are_no_double_click() -> None:
    async def work(box: RunningDesktop) -> None:
        await witness(box)
        seen = await perform(box, act.Click(x=0.4, y=0.4), act.Click(x=0.4, y=0.4), least=4)
        first, second = (one[4] for one in seen if one[0] == "button")
        assert second - first >= 250  # type: ignore[operator]

    on_a_box(work)


def test_a_screenshot_has_the_pointer_the_size_of_the_screen_and_the_same_bytes_while_nothing_happens() -> None:
    config = CONFIG.model_copy(update={"width": 700, "height": 500})

    async def work(box: RunningDesktop) -> None:
        answer, png = await box.content("look")
        assert (answer["width"], answer["height"]) == (700, 500)
        assert Image.open(io.BytesIO(png)).size == (700, 500)
        assert (await box.content("look"))[1] == png
        await box.ask("input", events=[["move", 600, 400]], rest_s=1)
        assert (await box.content("look"))[1] != png
        assert await box.ask("pointer") | {"id": 0, "bytes": 0} == {"x": 600, "y": 400, "id": 0, "bytes": 0}

    on_a_box(work, config)


@pytest.mark.slow
@pytest.mark.parametrize("template", EACH)
def test_a_task_starts_alike_twice_and_its_script_reaches_the_reward_within_its_steps(template: str) -> None:
    async def run() -> None:
        task = ENVIRONMENT.task(template)
        async with SandboxPool([ENVIRONMENT]) as pool:
            async with pool.lease(task, 5) as sandbox:
                first = await sandbox.observe()
                assert not (await sandbox.verify(DesktopReward())).over
            async with pool.lease(task, 5) as sandbox:
                assert isinstance(sandbox, DesktopSandbox)
                assert await sandbox.observe() == first
                hand = await solved(sandbox, template)
        assert hand.outcome.reaches(1) and hand.outcome.done
        assert hand.steps <= task.max_steps

    asyncio.run(run())


def test_the_guides_task_of_ones_own_is_played_in_a_subclass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, task = told("desktop.md", "errands", tmp_path, monkeypatch)
    config = CONFIG.model_copy(update={"desktops": 1})
    environment = type(environment)("errands", config)

    async def run() -> tuple[bool, bool]:
        async with SandboxPool([environment]) as pool, pool.lease(task, 3) as sandbox:
            assert (await sandbox.observe()).instruction == 'Write one.txt and then other.txt into "both.txt".'
            before = await sandbox.verify(DesktopReward())
            await sandbox.perform(act.Type(content="cat one.txt other.txt > both.txt\n"))
            return before.over, (await sandbox.verify(DesktopReward())).reaches(1)

    assert (task.task_id, task.lineage, list(environment.entries)) == (
        "errands/join-files",
        "errands 1",
        ["join-files"],
    )
    assert asyncio.run(run()) == (False, True)


def test_every_task_has_a_script() -> None:
    assert SCRIPTS.keys() == TASKS.keys() and len(TASKS) >= 15


def test_nothing_of_a_desktop_is_left_when_its_lease_ends_whatever_it_started() -> None:
    async def run() -> list[int]:
        async with SandboxPool([ENVIRONMENT]) as pool, pool.lease(ENVIRONMENT.task("make-folders"), 1) as sandbox:
            assert isinstance(sandbox, DesktopSandbox)
            await sandbox.perform(act.Type(content="setsid nohup sleep 1000 &\n"))
            await sandbox.perform(act.Type(content="(sleep 2000 & disown) &\n"))
            found = processes(sandbox.box.pid)
            assert sum("sleep" in one.name() for one in found) == 2
            (leased,) = leased_now()
            assert leased.host_mb is None and (leased.own_mb or 0) > 50, "X, its window manager and its programs"
            return [one.pid for one in found]

    assert left_behind(asyncio.run(run())) == []


KILLED = """
import asyncio, sys, time
from tests.fixtures.solutions import processes
from environments.desktop.sandbox import begin, open_programs
from tests.desktops import CONFIG
async def run():
    box = await begin(CONFIG)
    await open_programs(box, (("xterm",),))
    await box.ask("execute", command="setsid nohup sleep 1000 >/dev/null 2>&1 &", timeout_s=5)
    print(*(one.pid for one in processes(box.pid)), box.home, flush=True)
    time.sleep(60)
asyncio.run(run())
"""


@pytest.mark.slow
def test_nothing_of_a_desktop_is_left_when_its_owner_is_killed_outright() -> None:
    owner = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    *pids, _ = owner.stdout.readline().split()
    assert len(pids) >= 5, "bubblewrap, the box, Xvfb, openbox, xterm with its shell, sleep"
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    until = time.monotonic() + 5
    while (left := left_behind(map(int, pids))) and time.monotonic() < until:
        pass
    assert left == []


@IN_NAMESPACES  # elsewhere what is typed would end others' servers
def test_a_desktop_whose_server_dies_is_an_environment_failure_and_the_next_lease_works() -> None:
    async def run() -> None:
        async with SandboxPool([ENVIRONMENT]) as pool:
            with pytest.raises(SandboxFailure, match="desktop"):
                async with pool.lease(ENVIRONMENT.task("make-folders"), 1) as sandbox:
                    await sandbox.perform(act.Type(content="pkill -9 Xvfb\n"))
                    await sandbox.observe()
                    await sandbox.perform(act.Click(x=0.5, y=0.5))
            async with pool.lease(ENVIRONMENT.task("make-folders"), 1) as sandbox:
                assert (await sandbox.observe()).png

    asyncio.run(run())


def test_what_a_desktop_cannot_do_is_said_and_it_goes_on() -> None:
    async def work(box: RunningDesktop) -> None:
        with pytest.raises(AskFailed, match="no file"):
            await box.content("read", path="nowhere.txt")
        with pytest.raises(AskFailed, match="nothing-here"):
            await box.ask("open", command=["nothing-here"], window_s=1)
        assert (await box.ask("execute", command=["sleep", "30"], timeout_s=0.2)).get("timed_out")
        assert (await box.ask("execute", command=["cat", "/etc/hostname"], timeout_s=5))["returncode"] == 1
        held = await box.ask("execute", command="sleep 20 & echo here", timeout_s=5)
        assert held["stdout"] == "here\n", "who leaves something behind that holds the output is not waited for"

    on_a_box(work)


@IN_NAMESPACES
def test_a_desktop_sees_no_file_no_process_and_no_network_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    script = f"cat {tmp_path}/secret; cat {Path.home()}/.bashrc; cat /etc/shadow; ls /proc | grep -c '^[0-9]'; env"
    network = "import socket; print([name for _, name in socket.if_nameindex()])"

    async def work(box: RunningDesktop) -> None:
        answer = await box.ask("execute", command=script, timeout_s=10)
        assert "s3cret" not in answer["stdout"] and answer["stderr"].count("No such file") == 3
        assert int(answer["stdout"].splitlines()[0]) < 15
        assert not {"SECRET_TOKEN", "AWS_SECRET_ACCESS_KEY"} & {row.split("=")[0] for row in answer["stdout"].split()}
        seen = await box.ask("execute", command=["python", "-c", network], timeout_s=10)
        assert seen["stdout"] == "['lo']\n"
        wrote = await box.ask("execute", command=f"touch /usr/x {Path(sys.prefix)}/x", timeout_s=10)
        assert wrote["stderr"].count("Read-only") == 2

    os.environ["SECRET_TOKEN"] = "s3cret"
    try:
        on_a_box(work)
    finally:
        del os.environ["SECRET_TOKEN"]


@IN_NAMESPACES
def test_a_home_has_an_end() -> None:
    async def work(box: RunningDesktop) -> None:
        answer = await box.ask("execute", command="head -c 100M /dev/zero > big", timeout_s=20)
        assert "No space left" in answer["stderr"]

    on_a_box(work)


def test_without_namespaces_a_desktop_works_and_leaves_nothing_either() -> None:
    config = DesktopConfig.model_validate({"kind": "desktop", "isolation": "none"})

    async def run() -> None:
        box = await begin(config)
        home = Path(box.home)
        await box.ask("execute", command="setsid nohup sleep 1000 >/dev/null 2>&1 &", timeout_s=5)
        found = [one.pid for one in processes(box.pid)]
        assert home.is_dir() and (await box.content("look"))[1]
        await box.end()
        assert not home.exists() and left_behind(found) == []

    asyncio.run(run())


@IN_NAMESPACES
def test_a_desktop_makes_sockets_of_this_machine_and_of_networks_alone() -> None:
    made = (
        "import socket\nfor family in range(1, 48):\n    for kind in (1, 2, 3, 5):\n        try:\n            "
        "socket.socket(family, kind).close()\n            print(family)\n        except OSError:\n            pass\n"
    )

    async def work(box: RunningDesktop) -> None:
        ran = await box.ask("execute", command=["python", "-c", made], timeout_s=10)
        assert {int(line) for line in ran["stdout"].split()} <= set(SOCKETS.values())
        assert SOCKETS["AF_UNIX"] in {int(line) for line in ran["stdout"].split()}

    on_a_box(work)
