"""MobileGym's phones, with a stand-in for a checkout of it in `tests/mobilegym` (the real one:
tests/system/commands/test_mobilegym.py)."""

import asyncio
import os
import shutil
import sys
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from environments.catalog import catalog
from environments.mobilegym.build import SUITE, build
from environments.mobilegym.environment import MobileGymConfig, MobileGymEnvironment
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from schemas import action as act
from schemas.config import Config
from schemas.failure import ActionFailure, FlywheelError, TrajectoryFailure, UsageError
from schemas.observation import Outcome
from tests.fixtures.sentences import Sentences

STAND_IN = Path(__file__).parents[3] / "mobilegym"
NPM = '#!/bin/sh\necho "npm $*" >> "$LOG"\nmkdir -p node_modules/vite/bin\n'
NODE = """#!/bin/sh
[ "$1" = --version ] && { echo v20.0.0; exit 0; }
mkdir -p dist && cp phone.html dist/index.html
"""
ROOMS = {"kitchen": 150, "hall": 230, "attic": 310}
"""The middle of each lamp's button in the stand-in, in pixels from the top."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an npm and a node that stand in for the real ones."""
    folder = tmp_path_factory.mktemp("tools")
    for name, text in (("npm", NPM), ("node", NODE)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def built(tools: Path) -> Path:
    """The build of the stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        patch.setenv("LOG", str(tools / "log"))
        build(STAND_IN, tools / "phone", Path(sys.executable), lambda line: None)
    return tools / "phone"


def environment(built: Path, **keys: Any) -> MobileGymEnvironment:
    given = {"kind": "mobilegym", "folder": str(built), "python": sys.executable, "processes": 1, **keys}
    return MobileGymEnvironment("phone", MobileGymConfig.model_validate(given))


def tap(room: str) -> act.Click:
    return act.Click(x=0.5, y=ROOMS[room] / 800)


def room_of(instruction: str) -> str:
    return instruction.removeprefix("Switch on the lamp in the ").removesuffix(".")


async def verdict(sandbox: Sandbox) -> Outcome:
    verifier = verifier_of("openenv")
    assert verifier is not None
    return await sandbox.verify(verifier)


async def finished(sandbox: Sandbox, answer: str = "") -> Outcome:
    await sandbox.conclude(act.Finished(content=answer))
    return await verdict(sandbox)


def played(theirs: MobileGymEnvironment, template: str, *plays: Callable[[Sandbox], Awaitable[Any]]) -> list[Any]:
    """What each play of a task returns, with one seed."""

    async def run() -> list[Any]:
        async with SandboxPool([theirs]) as pool:
            found = list[Any]()
            for play in plays:
                async with pool.lease(theirs.task(template), 7) as sandbox:
                    found.append(await play(sandbox))
            return found

    return asyncio.run(run())


def test_a_build_has_the_phone_the_judges_and_their_data_and_lists_tasks_by_split(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {"dist", "checkout", "tasks.json", SUITE, "built.json", "LICENSE"}
    assert (built / "dist" / "index.html").is_file() and not list((built / "dist").rglob("*.py"))
    assert (built / "checkout" / "apps" / "Lights" / "data" / "lamps.json").is_file()
    entries = environment(built).entries
    assert {name: one.max_steps for name, one in entries.items()} == {
        "lights.SwitchOn": 15, "lights.CountLamps": 45, "lights.Unjudged": 15,
    }  # fmt: skip
    assert environment(built, eval_mode="text").entries["lights.CountLamps"].max_steps == 30
    assert entries["lights.SwitchOn"].tags == ("L1", "lights", "train")


def test_the_config_of_a_build_trains_on_one_split_and_holds_the_other_out(built: Path) -> None:
    given = tomllib.loads((built / SUITE).read_text())
    given["environments"]["mobilegym"] |= {"folder": str(built), "python": sys.executable}
    tasks = {task.template: task.split for task in catalog(Config.model_validate(given))}
    assert tasks == {"lights.CountLamps": "train", "lights.SwitchOn": "train", "lights.Unjudged": "held_out"}


def test_a_checkout_is_not_built_again_unless_it_changed(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    checkout = Path(shutil.copytree(STAND_IN, tmp_path / "checkout"))
    for change, times in ((False, 1), (False, 1), (True, 2)):
        if change:
            (checkout / "phone.html").write_text("another phone")
        build(checkout, tmp_path / "phone", Path(sys.executable), lambda line: None)
        assert len((tmp_path / "log").read_text().splitlines()) == times


def test_a_folder_that_is_no_checkout_and_one_whose_tasks_cannot_be_listed_are_refused(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    with sentence.raises(UsageError):
        build(tmp_path, tmp_path / "phone", Path(sys.executable), print)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    checkout = Path(shutil.copytree(STAND_IN, tmp_path / "checkout"))
    (checkout / "bench_env" / "config.py").write_text("import a_package_that_is_missing")
    with sentence.raises(FlywheelError):
        build(checkout, tmp_path / "phone", Path(sys.executable), lambda line: None)
    assert not (tmp_path / "phone").exists()


def test_a_missing_build_and_a_missing_python_are_named_with_the_command(
    built: Path, tmp_path: Path, sentence: Sentences
) -> None:
    with sentence.raises(FlywheelError, "environments.phone.folder"):
        environment(tmp_path).host()
    with sentence.raises(FlywheelError, "environments.phone.folder"):
        _ = environment(tmp_path).entries
    with sentence.raises(FlywheelError, "environments.phone.python"):
        environment(built, python=str(tmp_path / "python")).host()


@pytest.mark.parametrize("keys", [{"time": "noon"}, {"timezone": "Nowhere/Town"}, {"eval_mode": "judge"}])
def test_a_wrong_time_zone_or_mode_is_refused(keys: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=next(iter(keys))):
        environment(tmp_path, **keys)


@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_the_solution_scores_1_and_an_untouched_a_wrong_and_an_unclean_end_score_0(built: Path) -> None:
    async def solved(sandbox: Sandbox) -> Outcome:
        await sandbox.perform(tap(room_of((await sandbox.observe()).instruction)))
        assert await verdict(sandbox) == Outcome(False, 0.0)
        return await finished(sandbox)

    async def untouched(sandbox: Sandbox) -> Outcome:
        return await finished(sandbox)

    async def wrong(sandbox: Sandbox) -> Outcome:
        room = room_of((await sandbox.observe()).instruction)
        await sandbox.perform(tap(next(one for one in ROOMS if one != room)))
        return await finished(sandbox)

    async def unclean(sandbox: Sandbox) -> Outcome:
        for room in ROOMS:
            await sandbox.perform(tap(room))
        return await finished(sandbox)

    async def gave_up(sandbox: Sandbox) -> Outcome:
        await sandbox.perform(tap(room_of((await sandbox.observe()).instruction)))
        await sandbox.conclude(act.CallUser())
        return await verdict(sandbox)

    outcomes = played(environment(built), "lights.SwitchOn", solved, untouched, wrong, unclean, gave_up)
    assert outcomes == [Outcome(True, 1.0), *[Outcome(True, 0.0)] * 4]


@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_an_answer_goes_on_the_sheet_or_is_the_text_of_finished(built: Path) -> None:
    async def on_sheet(sandbox: Sandbox, text: str) -> list[Outcome]:
        assert (await sandbox.observe()).instruction == "How many lamps are there? Answer on the sheet."
        await sandbox.perform(act.OpenApp(app_name="answer sheet"))
        await sandbox.perform(tap("kitchen"))
        await sandbox.perform(act.Type(content="12"))
        await sandbox.perform(act.Hotkey(key="ctrl a"))
        await sandbox.perform(act.Type(content=text))
        await sandbox.perform(tap("hall"))
        return [await verdict(sandbox), await finished(sandbox, "3")]

    right, wrong, bare = played(
        environment(built), "lights.CountLamps", lambda one: on_sheet(one, "3"), lambda one: on_sheet(one, "4"),
        lambda one: finished(one, "3"),
    )  # fmt: skip
    assert right == [Outcome(False, 1.0), Outcome(True, 1.0)]
    assert wrong == [Outcome(False, 0.0), Outcome(True, 0.0)] and bare == Outcome(True, 0.0)
    text = environment(built, eval_mode="text")
    assert played(text, "lights.CountLamps", lambda one: finished(one, "3"), finished) == [
        Outcome(True, 1.0), Outcome(True, 0.0),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_an_error_of_the_judge_is_a_failure_of_the_verifier(built: Path) -> None:
    async def failed(sandbox: Sandbox, answer: str) -> str:
        with pytest.raises(TrajectoryFailure) as failure:
            await finished(sandbox, answer)
        assert failure.value.boundary == "verifier"
        return failure.value.reason

    reported, thrown = played(
        environment(built), "lights.Unjudged", lambda one: failed(one, ""), lambda one: failed(one, "a lamp")
    )
    assert reported == "lights.Unjudged: the state has no lamp"
    assert thrown == "lights.Unjudged: KeyError: 'a lamp'"


@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_a_seed_shows_the_same_screens_again_at_the_config_s_time_with_nothing_of_the_last_trajectory(
    built: Path,
) -> None:
    async def screens(sandbox: Sandbox) -> list[bytes]:
        first = await sandbox.observe()
        assert (first.width, first.height) == (360, 800)
        await sandbox.perform(tap("attic"))
        second = await sandbox.observe()
        await sandbox.perform(act.PressHome())
        await sandbox.perform(act.Wait(seconds=30))
        return [first.png, second.png, (await sandbox.observe()).png]

    theirs = environment(built)
    first, again = played(theirs, "lights.SwitchOn", screens, screens)
    assert first == again == played(theirs, "lights.SwitchOn", screens)[0] and len(set(first)) == 3
    later = environment(built, time="2026-05-19T09:00:00")
    assert played(later, "lights.SwitchOn", screens)[0][0] != first[0]


@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_actions_without_effect_are_explained_and_those_of_no_phone_are_the_policys_failure(built: Path) -> None:
    async def explained(sandbox: Sandbox) -> list[str | None]:
        actions = (
            act.OpenApp(app_name="Lihgts"), act.Type(content="no field"), act.LongPress(x=0.5, y=0.9),
            act.LeftDouble(x=0.5, y=0.9), act.Scroll(direction="down"), act.PressBack(), act.PressEnter(),
            act.Drag(x=0.1, y=0.9, to_x=0.9, to_y=0.9),
        )  # fmt: skip
        return [await sandbox.perform(action) for action in actions]

    async def refused(sandbox: Sandbox, action: act.Action) -> str:
        with pytest.raises(ActionFailure) as failure:
            await sandbox.perform(action)
        return failure.value.reason

    never = (act.Hotkey(key="ctrl c"), act.Terminal(command="ls"), act.LeftDouble())
    plays = [explained, *[lambda one, action=action: refused(one, action) for action in never]]
    (unknown, unfocused, *others), key, terminal, nowhere = played(environment(built), "lights.SwitchOn", *plays)
    assert unknown == "the phone has no app 'Lihgts'; the nearest: lights"
    assert unfocused == "no focused input element" and set(others) == {None}
    assert "a phone has no key 'ctrl c'" in key and "a phone cannot perform terminal" in terminal
    assert "the left_double has no place" in nowhere
