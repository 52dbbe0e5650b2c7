"""AndroidWorld's tasks, with a stand-in for a checkout, its emulators and the program adb in `tests/androidworld` (the
real package: tests/system/commands/test_androidworld.py)."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from environments.android.actions import KEYBOARD
from environments.androidworld import emulator as emulators
from environments.androidworld.build import SUITE, build
from environments.androidworld.emulator import find_program
from environments.androidworld.environment import AndroidWorldConfig, AndroidWorldEnvironment
from environments.catalog import catalog
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from schemas import action as act
from schemas.config import Config
from schemas.failure import ActionFailure, FlywheelError, SandboxFailure, TrajectoryFailure, UsageError
from schemas.observation import Outcome
from schemas.tables.trajectory import SPLIT_STARTS
from tests.androidworld import phone
from tests.command import Call
from tests.fixtures.sentences import Sentences

STAND_IN = Path(__file__).parents[3] / "androidworld"
SEED = 7
Play = Callable[[Sandbox], Awaitable[Any]]


class Phones:
    """Emulators of the stand-in, in a folder with their program adb."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.adb = folder, folder / "adb"
        folder.mkdir()
        for name in ("adb", "phone.py"):
            shutil.copy(STAND_IN / name, folder)
        self.adb.write_text(self.adb.read_text().replace("/usr/bin/env python3", f"{sys.executable} -S"))
        self.put()

    def put(self, console: int = 5554, **values: Any) -> None:
        phone.write(self.folder / f"emulator-{console}.json", {**phone.NEW, **values})

    def state(self, console: int = 5554) -> dict[str, Any]:
        return phone.read(self.folder / f"emulator-{console}.json")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build of the stand-in, with its android_env."""
    to = tmp_path_factory.mktemp("build") / "androidworld"
    build(STAND_IN, to, Path(sys.executable), lambda line: None)
    shutil.copytree(STAND_IN / "android_env", to / "checkout" / "android_env")
    return to


@pytest.fixture
def phones(tmp_path: Path) -> Phones:
    return Phones(tmp_path / "phones")


@pytest.fixture
def grpc(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that accepts connections, as an emulator's gRPC service and the adb server do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(emulators, "SERVER_PORT", port)
        yield port


@pytest.fixture
def world(built: Path, phones: Phones, grpc: int) -> Callable[..., AndroidWorldEnvironment]:
    def make(**keys: Any) -> AndroidWorldEnvironment:
        given = {
            "folder": str(built),
            "python": sys.executable,
            "adb": str(phones.adb),
            "grpc_ports": [grpc],
            "settle_s": 0,
            **keys,
        }
        config = AndroidWorldConfig.model_validate({"kind": "androidworld", **given})
        return AndroidWorldEnvironment("world", config)

    return make


def tap(lamp: int) -> act.Click:
    return act.Click(x=0.5, y=(lamp + 0.5) / 3)


async def verdict(sandbox: Sandbox) -> Outcome:
    verifier = verifier_of("openenv")
    assert verifier is not None
    return await sandbox.verify(verifier)


async def finished(sandbox: Sandbox, answer: str = "") -> Outcome:
    await sandbox.conclude(act.Finished(content=answer))
    return await verdict(sandbox)


def played(theirs: AndroidWorldEnvironment, template: str, *plays: Play, seed: int = SEED) -> list[Any]:
    """What each play of a task returns, with one seed."""

    async def run() -> list[Any]:
        async with SandboxPool([theirs]) as pool:
            found = list[Any]()
            for play in plays:
                async with pool.lease(theirs.task(template), seed) as sandbox:
                    found.append(await play(sandbox))
            return found

    return asyncio.run(run())


async def instruction(sandbox: Sandbox) -> str:
    return (await sandbox.observe()).instruction


def test_a_build_lists_tasks_with_limits_from_their_complexity_and_families_with_a_suffix(
    world: Callable[..., AndroidWorldEnvironment], built: Path
) -> None:
    assert {path.name for path in built.iterdir()} == {"checkout", "tasks.json", SUITE, "built.json", "LICENSE"}
    entries = world().entries
    limits = {name: one.max_steps for name, one in entries.items()}
    assert (limits["SwitchOn"], limits["SwitchOnTwo"], limits["press"]) == (12, 24, 30)
    assert entries["SwitchOn"].tags == ("easy", "lamps", "android_world")
    assert entries["press"].tags == ("com.pages", "miniwob", "miniwob_subset")
    assert not any(one.deterministic for one in entries.values())


def test_the_config_of_a_build_rolls_out_the_benchmark(built: Path) -> None:
    given = tomllib.loads((built / SUITE).read_text())
    given["environments"]["androidworld"] |= {"folder": str(built)}
    tasks = {task.template for task in catalog(Config.model_validate(given))}
    assert "SwitchOn" in tasks and "press" not in tasks


def test_a_checkout_is_built_again_only_if_it_changed_and_compiles_its_protocol_buffers(tmp_path: Path) -> None:
    checkout, lines = Path(shutil.copytree(STAND_IN, tmp_path / "checkout")), list[str]()
    for change in (False, False, True):
        if change:
            (checkout / "android_world" / "state.proto").write_text('syntax = "proto3";')
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("environments.androidworld.build.run", lambda command, *rest: lines.append(command[-1]))
            build(checkout, tmp_path / "androidworld", Path(sys.executable), lines.append)
    steps = [line.split()[0] for line in lines if line != "the tasks (about 20 s)"]
    assert len(steps) == 4 and (steps[1], steps[2]) == ("is", "android_world/state.proto")


def test_a_folder_that_is_no_checkout_and_one_whose_tasks_cannot_be_listed_are_refused(
    tmp_path: Path, sentence: Sentences
) -> None:
    with sentence.raises(UsageError):
        build(tmp_path, tmp_path / "androidworld", Path(sys.executable), print)
    checkout = Path(shutil.copytree(STAND_IN, tmp_path / "checkout"))
    (checkout / "android_world" / "registry.py").write_text("import a_package_that_is_missing")
    with sentence.raises(FlywheelError):
        build(checkout, tmp_path / "androidworld", Path(sys.executable), lambda line: None)
    assert not (tmp_path / "androidworld").exists()


def test_the_command_adds_a_checkout_and_refuses_what_it_does_not_use(
    tmp_path: Path, flywheel: Call, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("environments.workers.build.add", lambda module, *rest: module)
    monkeypatch.setattr("environments.workers.build.python_in", lambda folder: Path(sys.executable))
    add = ("environments", "add", "androidworld")
    for more in ((), ("--from", tmp_path), ("--from", STAND_IN, "--apps", "a")):
        status, _, error = flywheel(*add, *more)
        assert status
        sentence(error)
    status, output, _ = flywheel(*add, "--from", STAND_IN, "--dir", tmp_path / "world", "--json")
    assert not status and json.loads(output)["config"] == str(tmp_path / "world" / SUITE)
    status, _, error = flywheel("environments", "add", "andriodworld")
    assert status
    sentence(error)


def test_a_missing_build_python_package_and_adb_are_named_with_the_fix(
    world: Callable[..., AndroidWorldEnvironment], tmp_path: Path, sentence: Sentences, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sentence.raises(FlywheelError, "environments.world.folder"):
        world(folder=str(tmp_path)).host()
    with sentence.raises(FlywheelError, "environments.world.folder"):
        _ = world(folder=str(tmp_path)).entries
    with sentence.raises(FlywheelError, "environments.world.python"):
        world(python=str(tmp_path / "python")).host()
    with sentence.raises(FlywheelError, "environments.world.python", PYTHON=sys.executable):
        world().probes()[0].examine()
    with sentence.raises(FlywheelError, "environments.world.adb"):
        world(adb=str(tmp_path / "adb")).host()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path))
    monkeypatch.setattr(emulators, "SDKS", ())
    with sentence.raises(FlywheelError, "environments.world.adb"):
        world(adb="").host()


def test_programs_are_found_in_the_sdk_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulators, "SDKS", (str(tmp_path / "usual"),))
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "named"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for place in ("bin/adb", "usual/platform-tools/adb", "named/platform-tools/adb"):
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.touch(0o755)
        assert find_program("adb", "platform-tools/adb") == path


@pytest.mark.parametrize(
    "keys",
    [
        {"grpc_ports": [1, 2]}, {"console_ports": [5554, 5554], "grpc_ports": [1, 2]}, {"console_ports": [5555]},
        {"console_ports": [], "grpc_ports": []}, {"console_ports": [0]},
        {"seeds": {"train": {"first": 0, "count": 50}, "test": {"first": 30, "count": 1}}},
    ],
)  # fmt: skip
def test_wrong_ports_and_overlapping_seeds_are_refused(
    keys: dict[str, Any], world: Callable[..., AndroidWorldEnvironment]
) -> None:
    with pytest.raises((ValidationError, ValueError), match="|".join(keys)):
        _ = world(**keys)


def test_each_state_of_an_emulator_has_its_fix(
    world: Callable[..., AndroidWorldEnvironment],
    phones: Phones,
    grpc: int,
    sentence: Sentences,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emulators, "SDKS", ())
    for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{phones.folder}:{os.environ['PATH']}")
    states: list[dict[str, Any]] = [
        {"state": "offline"}, {"state": ""}, {"booted": ""}, {"debuggable": "0"}, {"api": "34"}
    ]  # fmt: skip
    for state in states:
        phones.put(**state)
        if state.get("state") == "":
            with sentence.raises(FlywheelError, "environments.world.console_ports", GRPC=str(grpc)):
                world().probes()[1].examine()
            (phones.folder / "emulator").touch(0o755)
        if "api" in state:
            assert world().probes()[1].examine() == "emulator-5554 (API 34; AndroidWorld is made for 33)"
            continue
        with sentence.raises(FlywheelError, "environments.world.console_ports", GRPC=str(grpc)):
            world().probes()[1].examine()
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with sentence.raises(FlywheelError, "environments.world.grpc_ports", PORT=str(free)):
        world(grpc_ports=[free]).probes()[1].examine()
    (phones.folder / "broken").touch()
    monkeypatch.setattr(emulators, "SERVER_PORT", free)
    with sentence.raises(FlywheelError, "environments.world.adb", ADB=str(phones.adb), PORT=str(free)):
        world().probes()[1].examine()
    monkeypatch.setattr(emulators, "SERVER_PORT", grpc)
    with sentence.raises(FlywheelError, "environments.world.adb", ADB=str(phones.adb)):
        world().probes()[1].examine()


@pytest.mark.slow
def test_doctor_reports_all_emulators_that_are_missing_and_starts_a_task(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones, grpc: int
) -> None:
    with pytest.raises(FlywheelError) as error:
        world(console_ports=[5556, 5558], grpc_ports=[grpc, grpc + 1]).probes()[1].examine()
    assert "emulator-5556 is not running" in str(error.value) and "emulator-5558 is not running" in str(error.value)
    assert world().probes()[1].examine() == "emulator-5554 (API 33)"
    assert world().probes()[2].examine() == "SwitchOn started, 120 x 240 pixels"


@pytest.mark.slow
def test_the_state_at_the_end_is_scored_once_and_only_1_is_a_success(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    async def solved(sandbox: Sandbox) -> list[Outcome]:
        room = (await instruction(sandbox)).split()[6]
        await sandbox.perform(tap(("kitchen", "hall", "attic").index(room)))
        return [await verdict(sandbox), await finished(sandbox)]

    async def gave_up(sandbox: Sandbox) -> Outcome:
        room = (await instruction(sandbox)).split()[6]
        await sandbox.perform(tap(("kitchen", "hall", "attic").index(room)))
        await sandbox.conclude(act.CallUser())
        return await verdict(sandbox)

    outcomes = played(world(), "SwitchOn", solved, finished, gave_up)
    assert outcomes == [[Outcome(False, 0.0), Outcome(True, 1.0)], Outcome(True, 0.0), Outcome(True, 1.0)]

    async def half(sandbox: Sandbox) -> Outcome:
        await sandbox.perform(tap(0))
        return await finished(sandbox)

    assert played(world(), "SwitchOnTwo", half) == [Outcome(True, 0.5)]
    done = phones.state()["done"]
    assert done[1:6] == ["root", "begin SwitchOn", "home", "hide", "end SwitchOn"]
    assert done.count("begin SwitchOn") == done.count("end SwitchOn") == 3


@pytest.mark.slow
def test_an_answer_is_the_text_of_finished_and_the_next_task_has_none(
    world: Callable[..., AndroidWorldEnvironment],
) -> None:
    outcomes = played(world(), "CountLamps", lambda one: finished(one, "3"), finished, lambda one: finished(one, "４"))
    assert outcomes == [Outcome(True, 1.0), Outcome(True, 0.0), Outcome(True, 0.0)]


@pytest.mark.slow
def test_a_page_ends_by_itself_as_in_their_runner(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    async def pressed(sandbox: Sandbox, *lamps: int) -> list[Outcome]:
        found = list[Outcome]()
        for lamp in lamps:
            await sandbox.perform(tap(lamp))
            found.append(await verdict(sandbox))
        return found

    right, wrong = played(world(), "press", lambda one: pressed(one, 0, 1), lambda one: pressed(one, 1, 2))
    assert right == [Outcome(False, 0.0), Outcome(True, 1.0)] and wrong == [Outcome(False, 0.0), Outcome(True, 0.0)]
    assert "stay" in phones.state()["done"]


@pytest.mark.slow
def test_a_seed_determines_the_parameters_in_every_process_and_the_time_of_day_does_not(
    world: Callable[..., AndroidWorldEnvironment],
) -> None:
    for template, of_seed_7 in (("SwitchOn", None), ("Named", "Make the folder 20231015_153407.")):
        first, second = played(world(), template, instruction, instruction)
        assert first == second == played(world(), template, instruction)[0] and of_seed_7 in (None, first)
        assert played(world(), template, instruction, seed=8) != [first]
    assert played(world(), "Write", instruction, seed=8) == ["Write the text."]


@pytest.mark.slow
def test_the_seeds_of_a_split_are_those_of_the_config(world: Callable[..., AndroidWorldEnvironment]) -> None:
    theirs = world(seeds={"test": {"first": 30, "count": 1}})
    (published,) = played(theirs, "SwitchOn", instruction, seed=SPLIT_STARTS["test"])
    assert published == played(theirs, "SwitchOn", instruction, seed=30)[0]
    with pytest.raises(SandboxFailure, match=r"seeds\.test"):
        played(theirs, "SwitchOn", instruction, seed=SPLIT_STARTS["test"] + 1)


@pytest.mark.slow
def test_an_error_of_the_check_is_the_verifiers_and_a_device_that_is_gone_the_sandboxs(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    async def failed(sandbox: Sandbox) -> tuple[str, str]:
        with pytest.raises(TrajectoryFailure) as failure:
            await finished(sandbox)
        return failure.value.boundary, failure.value.reason

    for template, reason in (
        ("Unjudged", "Unjudged: ValueError: no such table"),
        ("Endless", "Endless: a score of nan, and scores are in [0, 1]"),
    ):
        assert played(world(), template, failed) == [("verifier", reason)]
    ((boundary, reason),) = played(world(), "Vanishing", failed)
    assert boundary == "sandbox" and "emulator-5554 is gone: no answer" in reason

    async def unplugged(sandbox: Sandbox) -> str:
        phones.put(state="")
        with pytest.raises(SandboxFailure) as failure:
            await sandbox.perform(tap(0))
        return failure.value.reason

    phones.put()
    assert "emulator-5554 is gone: adb: device 'emulator-5554' not found" in played(world(), "SwitchOn", unplugged)[0]


@pytest.mark.slow
def test_a_check_that_finds_no_device_says_so(world: Callable[..., AndroidWorldEnvironment], phones: Phones) -> None:
    async def failed(sandbox: Sandbox) -> tuple[str, str]:
        phones.put(state="offline")
        with pytest.raises(TrajectoryFailure) as failure:
            await finished(sandbox)
        return failure.value.boundary, failure.value.reason

    ((boundary, reason),) = played(world(), "SwitchOn", failed)
    assert boundary == "sandbox" and "emulator-5554 is gone: RuntimeError: adb: no devices/emulators found" in reason


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, "emulator-5554 has no app absent (org.absent)"),
        ({"packages": ["org.absent"], "snapshots": False}, "no snapshot of app absent (/data/snapshots/org.absent)"),
    ],
)
def test_an_app_that_is_missing_or_was_not_set_up_fails_the_start(
    state: dict[str, Any], reason: str, world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    phones.put(**state)
    with pytest.raises(SandboxFailure) as failure:
        played(world(), "Absent", instruction)
    assert reason in failure.value.reason and "--perform_emulator_setup" in failure.value.reason
    assert played(world(), "NoApp", instruction) == ["Wait."]
    assert "begin Absent" not in phones.state()["done"]


@pytest.mark.slow
def test_a_worker_reaches_the_internet_by_the_proxy_and_its_emulator_without(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones, grpc: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside")
    monkeypatch.delenv("no_proxy", raising=False)
    assert played(world(), "NoApp", instruction) == ["Wait."]
    assert phones.state()["done"][0] == f"connected {grpc} http://proxy:3128 localhost,127.0.0.1,inside"


@pytest.mark.slow
def test_a_task_that_cannot_be_torn_down_does_not_end_the_worker(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    assert played(world(), "Untidy", finished, finished) == [Outcome(True, 0.0)] * 2
    assert len([one for one in phones.state()["done"] if one.startswith("connected")]) == 1


def lines_of(theirs: AndroidWorldEnvironment, phones: Phones, *actions: act.Action) -> list[Any]:
    """The effect of each action: the lines of the phone's shell, the reason without an effect, or the error."""

    async def perform(sandbox: Sandbox, action: act.Action) -> Any:
        before = len(phones.state()["lines"])
        try:
            reason = await sandbox.perform(action)
        except ActionFailure as failure:
            return failure.reason
        return reason or " ".join(phones.state()["lines"][before:])

    async def all_of(sandbox: Sandbox) -> list[Any]:
        return [await perform(sandbox, action) for action in actions]

    return played(theirs, "Write", all_of)[0]


@pytest.mark.slow
def test_actions_are_lines_of_the_phones_shell(world: Callable[..., AndroidWorldEnvironment], phones: Phones) -> None:
    found = lines_of(
        world(), phones, act.Click(x=0.25, y=0.25), act.LeftDouble(x=0.5, y=0.5),
        act.LongPress(x=0.5, y=0.5, seconds=2), act.Scroll(direction="down"),
        act.Scroll(direction="left", x=0.5, y=0.25),
        act.Drag(x=0.0, y=0.0, to_x=1.0, to_y=1.0), act.PressHome(), act.PressBack(), act.PressRecent(),
        act.PressEnter(), act.Hotkey(key="ctrl a"), act.Terminal(command="ls"), act.Hotkey(key="f13"),
        act.UseTool(name="tool", arguments={"a": 1}), act.Click(x=1.0, y=1.0), act.Wait(seconds=0.01), act.Wait(),
    )  # fmt: skip
    assert found[:10] == [
        "input tap 30 60", "input tap 60 120; input tap 60 120", "input swipe 60 120 60 120 2000",
        "input swipe 60 120 60 24 500", "input swipe 60 60 108 60 500", "input swipe 0 0 119 239 1000",
        "input keyevent 3", "input keyevent 4", "input keyevent 187", "input keyevent 66",
    ]  # fmt: skip
    assert found[10] == "the phone did not perform hotkey: Error: Unknown command: keycombination"
    assert "cannot perform terminal" in found[11] and "f13" in found[12] and "no tool 'tool'" in found[13]
    assert found[14:] == ["input tap 119 239", "", ""]


@pytest.mark.slow
def test_a_screen_is_given_time_after_an_action_but_not_after_a_wait(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    async def seconds(sandbox: Sandbox) -> list[float]:
        found = list[float]()
        for action in (act.Wait(seconds=0.01), act.PressHome()):
            before = time.monotonic()
            await sandbox.perform(action)
            found.append(time.monotonic() - before)
        return found

    ((waited, pressed),) = played(world(settle_s=3), "Write", seconds)
    assert waited < 3 <= pressed


@pytest.mark.slow
def test_text_of_any_script_and_length_is_typed_and_the_keyboard_given_back(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    long = "a long text's words; `$HOME` & 100%s " * 100
    found = lines_of(world(), phones, act.Type(content="世界"))
    assert "ADBKeyboard" in found[0] and phones.state()["typed"] == ""
    phones.put(keyboards=["latin", KEYBOARD])
    assert not lines_of(world(), phones, act.Type(content=""))[0].strip(": ")
    lines_of(world(), phones, act.Type(content="Grüße, 世界 🙂\n"))
    state = phones.state()
    assert state["typed"] == "Grüße, 世界 🙂" and state["keyboard"] == "latin"
    assert any("input keyevent 66" in line for line in state["lines"])
    typed = lines_of(world(), phones, act.Type(content=long))[0]
    assert typed.count("input text") > 40 and "ime" not in typed
    endless = lines_of(world(), phones, act.Type(content="x" * 200_000))[0]
    assert endless == "types 200000 characters, and one action may type 10000"


@pytest.mark.slow
def test_an_app_is_opened_by_name_or_package_and_an_unknown_or_missing_one_explained(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    names = ("Lamps ", "com.pages", "absent", "lmaps")
    found = lines_of(world(), phones, *[act.OpenApp(app_name=name) for name in names])
    assert found[2] == "the phone has no app 'absent'"
    assert found[3].startswith("the phone has no app 'lmaps'; the nearest: lamps, org.lamps")
    assert [one for one in phones.state()["done"] if one.startswith("open")] == ["open lamps", "open com.pages"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "size", "place"),
    [
        ({"turns": 1}, (240, 120), "input tap 120 100"),
        ({"turns": 2}, (120, 240), "input tap 60 200"),
        ({"turns": 3}, (240, 120), "input tap 120 100"),
        ({"logical": [60, 80], "frame": [0, 40, 120, 200]}, (120, 160), "input tap 30 66"),
        ({"turns": 1, "logical": [60, 80], "frame": [0, 40, 120, 200]}, (160, 120), "input tap 40 50"),
        ({"size": [480, 200]}, (480, 200), "input tap 240 166"),
    ],
)
def test_a_turned_or_resized_screen_is_shown_upright_and_touched_where_it_is_seen(
    state: dict[str, Any],
    size: tuple[int, int],
    place: str,
    world: Callable[..., AndroidWorldEnvironment],
    phones: Phones,
) -> None:
    phones.put(**state)

    async def attic(sandbox: Sandbox) -> tuple[tuple[int, int], bytes]:
        first = await sandbox.observe()
        await sandbox.perform(tap(2))
        return (first.width, first.height), (await sandbox.observe()).png

    ((seen, png),) = played(world(), "SwitchOn", attic)
    assert seen == size and phones.state()["lines"] == [place] and phones.state()["lamps"] == [False, False, True]
    pixels = _pixels(png)
    assert pixels[size[1] - 3, size[0] // 2].tolist() == [250, 220, 0] and pixels[2, size[0] // 2].tolist() != [
        250,
        220,
        0,
    ]


def _pixels(png: bytes) -> Any:
    import io

    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB"))


def test_a_screenshot_that_the_emulator_turned_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.syspath_prepend(STAND_IN.parents[1] / "environments" / "workers" / "foreign")
    from androidworld_worker import upright  # pyright: ignore[reportMissingImports]

    landscape = np.zeros((120, 240, 3), np.uint8)
    assert upright(landscape, (0, 0, 120, 240), 1) is landscape


@pytest.mark.slow
def test_each_emulator_plays_its_own_trajectories_at_the_same_time(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones, grpc: int
) -> None:
    phones.put(5556)
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = world(console_ports=[5554, 5556], grpc_ports=[grpc, server.getsockname()[1]])

        async def run() -> None:
            async with SandboxPool([theirs]) as pool:
                task = theirs.task("SwitchOn")
                async with pool.lease(task, 1) as first, pool.lease(task, 2) as second:
                    await asyncio.gather(first.perform(tap(0)), second.perform(tap(0)))

        asyncio.run(run())
    assert [len(phones.state(console)["lines"]) for console in (5554, 5556)] == [1, 1]


@pytest.mark.slow
def test_a_worker_that_is_killed_fails_its_lease_and_the_next_one_has_the_same_task(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    theirs = world()

    async def run() -> tuple[str, str]:
        async with SandboxPool([theirs]) as pool:
            task = theirs.task("SwitchOn")
            with pytest.raises(SandboxFailure):
                async with pool.lease(task, SEED) as sandbox:
                    before = await instruction(sandbox)
                    for pid in await asyncio.to_thread(_workers, phones.adb):
                        os.kill(pid, signal.SIGKILL)
                    await sandbox.perform(tap(0))
            async with pool.lease(task, SEED) as sandbox:
                return before, await instruction(sandbox)

    before, after = asyncio.run(run())
    assert before == after
    done = phones.state()["done"]
    assert sum(one.startswith("connected") for one in done) == 2 and "end SwitchOn" in done


def _workers(adb: Path) -> list[int]:
    """Ids of the worker's processes, which have this program adb."""
    found = list[int]()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # another user's process, or one that just ended
            if f"FLYWHEEL_ADB={adb}".encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


@pytest.mark.slow
def test_a_run_waits_for_no_emulator_that_is_gone(
    world: Callable[..., AndroidWorldEnvironment], phones: Phones
) -> None:
    phones.put(state="")
    with pytest.raises(FlywheelError) as error:
        played(world(), "SwitchOn", instruction)
    assert "`environments.world.console_ports`: emulator-5554 is not running" in str(error.value)
