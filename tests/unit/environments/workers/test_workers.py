"""Others' environments in processes and Pythons of their own: what is played, what goes wrong, and what is left."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from environments.workers.environment import WorkerConfig, WorkerEnvironment
from environments.workers.host import PREFIX
from schemas import action as act
from schemas.failure import ActionFailure, EnvironmentDown, FlywheelError, SandboxFailure
from schemas.observation import Outcome
from tests.fixtures.sentences import Sentences
from tests.processes import left

SCRIPT = Path(__file__).with_name("foreign_worker.py")


def environment(**keys: Any) -> WorkerEnvironment:
    tasks = {"play": {"instruction": "Play.", "reset": {"task": "a game"}}}
    given = {"kind": "worker", "module": str(SCRIPT), "python": sys.executable, "processes": 1, "tasks": tasks} | keys
    return WorkerEnvironment("theirs", WorkerConfig.model_validate(given))


async def typed(sandbox: Sandbox, text: str) -> str | None:
    return await sandbox.perform(act.Type(content=text))


async def number(sandbox: Sandbox) -> str:
    """The worker's process."""
    await typed(sandbox, "number")
    return (await sandbox.observe()).instruction


async def verdict(sandbox: Sandbox) -> Outcome:
    verifier = verifier_of("openenv")
    assert verifier is not None
    return await sandbox.verify(verifier)


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{os.getpid()}-*"))


def test_episodes_are_played_one_after_the_other_in_one_process_each_with_its_seed_and_its_reward() -> None:
    async def run() -> tuple[list[str], set[str]]:
        theirs, instructions, pids = environment(), list[str](), set[str]()
        async with SandboxPool([theirs]) as pool:
            for seed in (7, 8):
                async with pool.lease(theirs.task("play"), seed) as sandbox:
                    seen = await sandbox.observe()
                    assert (seen.width, seen.height, seen.png[:4]) == (40, 30, b"\x89PNG")
                    assert await verdict(sandbox) == Outcome(False, 0.0)
                    instructions.append(seen.instruction)
                    pids.add(await number(sandbox))
                    await typed(sandbox, "win")
                    assert await verdict(sandbox) == Outcome(True, 1.0)
        return instructions, pids

    instructions, pids = asyncio.run(run())
    assert (instructions, len(pids)) == (["a game 7", "a game 8"], 1)
    assert folders() == []


@pytest.mark.parametrize(
    ("instruction", "reset", "shown", "takes"),
    [
        ("Balance.", {"keys": {"left": 0, "right": 1}}, "Balance. Keys: left, right.", {"hotkey"}),
        ("Keys: left. Go.", {"keys": {"left": 0, "right": 1}, "idle": 0}, "Keys: left. Go.", {"hotkey", "wait"}),
        ("Balance.", {}, "Balance.", {"hotkey"}),
    ],
)
def test_a_task_of_gymnasium_names_its_keys_and_takes_them_alone(
    instruction: str, reset: dict[str, Any], shown: str, takes: set[str]
) -> None:
    theirs = environment(module="gymnasium", tasks={"play": {"instruction": instruction, "reset": reset}})
    assert theirs.task("play").instruction == shown
    assert theirs.config.takes("play") == takes


def test_what_a_script_takes_is_not_known_unless_its_actions_are_written() -> None:
    told = environment(tasks={"play": {"instruction": "Play.", "reset": {"keys": {"left": 0}}}})
    assert (told.task("play").instruction, told.config.takes("play")) == ("Play.", frozenset())
    assert environment(actions={"click": {}}).config.takes("play") == {"click"}


ENDS = {
    "die": "the worker foreign_worker ended at step with exit status 3: a last word",
    "kill": "the worker foreign_worker ended at step by signal 9: it printed nothing",
    "hang": "no answer to type within 3 s",
    "garble": "the worker foreign_worker sent no valid answer to step",
    "flood": "the worker foreign_worker sent no valid answer to step",
    "fail": "the worker foreign_worker refuses type: ValueError: the world is odd (SESSION_ERROR)",
    "draw": "refuses type: TypeError: a picture is (height, width, 3) of uint8, and this is (3, 4) of float64",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ENDS)
def test_what_ends_a_worker_or_garbles_it_is_the_environments_failure_and_the_next_lease_works(what: str) -> None:
    async def run() -> tuple[str, list[int], float]:
        theirs = environment(step_timeout_s=3.0)
        async with SandboxPool([theirs]) as pool:
            with pytest.raises(SandboxFailure) as failed:
                async with pool.lease(theirs.task("play"), 1) as sandbox:
                    await typed(sandbox, "leave")
                    pids = [int(pid) for pid in (await sandbox.observe()).instruction.split()]
                    await typed(sandbox, what)
            async with pool.lease(theirs.task("play"), 1) as sandbox:
                await typed(sandbox, "win")
                return failed.value.reason, left(pids), (await verdict(sandbox)).reward

    reason, there, reward = asyncio.run(run())
    assert ENDS[what] in reason
    assert (there, reward) == ([], 1.0)


def test_an_action_that_it_does_not_have_is_the_policys_failure_and_the_process_goes_on() -> None:
    async def run() -> None:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            pids = set[str]()
            for _ in range(2):
                with pytest.raises(ActionFailure, match="takes no such click: nobody can click"):
                    async with pool.lease(theirs.task("play"), 1) as sandbox:
                        pids.add(await number(sandbox))
                        await sandbox.perform(act.Click(x=0.5, y=0.5))
            assert len(pids) == 1

    asyncio.run(run())


def test_action_errors_limits_answers_and_what_it_prints_are_told_apart() -> None:
    async def run() -> None:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            async with pool.lease(theirs.task("play"), 1) as sandbox:
                assert await typed(sandbox, "vain") == "there is nothing there"
                await sandbox.perform(act.Hotkey(key="control up"))
                assert (await sandbox.observe()).instruction == "ctrl arrowup"
                await typed(sandbox, "limit")
                assert await verdict(sandbox) == Outcome(False, 0.5, truncated=True)
            async with pool.lease(theirs.task("play"), 1) as sandbox:
                await sandbox.conclude(act.Finished(content="42"))
                assert await verdict(sandbox) == Outcome(True, 1.0)
            async with pool.lease(theirs.task("play"), 1) as sandbox:
                await typed(sandbox, "talk")
                assert await verdict(sandbox) == Outcome(True, 1.0)

    asyncio.run(run())


def test_an_episode_that_is_over_as_it_begins_is_the_environments_failure() -> None:
    async def run() -> None:
        theirs = environment(reset={"over": True})
        async with SandboxPool([theirs]) as pool, pool.lease(theirs.task("play"), 1):
            pass

    with pytest.raises(SandboxFailure, match="the reset already ended the episode"):
        asyncio.run(run())


def test_a_worker_that_is_killed_while_nobody_is_in_it_is_replaced() -> None:
    async def run() -> None:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            async with pool.lease(theirs.task("play"), 1) as sandbox:
                pid = int(await number(sandbox))
            os.kill(pid, signal.SIGKILL)
            async with pool.lease(theirs.task("play"), 1) as sandbox:
                assert int(await number(sandbox)) != pid

    asyncio.run(run())


def test_who_asks_whether_it_is_well_does_not_disturb_an_episode_that_begins_meanwhile() -> None:
    async def run() -> bool:
        theirs = environment()
        host = theirs.host()
        await host.revive()
        try:
            sandbox = host.sandbox()
            well, _ = await asyncio.gather(host.healthy(), sandbox.start(theirs.task("play"), 1))
            await typed(sandbox, "win")
            return well
        finally:
            await host.close()

    assert asyncio.run(run())


OWNER = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from tests.unit.environments.workers.test_workers import *

async def run():
    theirs = environment()
    async with SandboxPool([theirs]) as pool, pool.lease(theirs.task("play"), 1) as sandbox:
        await typed(sandbox, "leave")
        print((await sandbox.observe()).instruction, flush=True)
        await asyncio.sleep(600)

asyncio.run(run())
"""


def test_nothing_of_a_worker_is_left_when_its_owner_is_killed_outright() -> None:
    code = OWNER.format(tests=str(Path(__file__).parents[4]))
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) == 3, "the worker, what it started, and what that started"
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert left(pids) == []
    until = time.monotonic() + 5
    while list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{owner.pid}-*")):
        assert time.monotonic() < until, "its folder stays"


def test_a_start_that_is_cancelled_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEVER", "1")
    before = {one.pid for one in psutil.Process().children(recursive=True)}

    async def run() -> None:
        host = environment(variables=["NEVER"]).host()
        starting = asyncio.create_task(host.revive())
        while not {one.pid for one in psutil.Process().children(recursive=True)} - before:
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.wait((starting,))

    asyncio.run(run())
    assert left({one.pid for one in psutil.Process().children(recursive=True)} - before) == []
    assert folders() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        (
            "LACKS",
            "ended at state with exit status 1: ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
        ),
        ("NEVER", "the worker foreign_worker did not begin within 1 s"),
    ],
)
def test_a_worker_that_does_not_begin_says_why(variable: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")

    async def run() -> None:
        async with SandboxPool([environment(variables=[variable], start_timeout_s=1.0 if variable == "NEVER" else 30)]):
            pass

    with pytest.raises(EnvironmentDown) as down:
        asyncio.run(run())
    assert reason in str(down.value)


def test_it_is_given_the_variables_that_are_named_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("A_SECRET", "of ours")

    async def run() -> set[str]:
        theirs = environment(variables=["SHOP_URL"])
        async with SandboxPool([theirs]) as pool, pool.lease(theirs.task("play"), 1) as sandbox:
            await typed(sandbox, "variables")
            return set((await sandbox.observe()).instruction.split())

    given = asyncio.run(run())
    assert {"PATH", "SHOP_URL", "TMPDIR"} <= given
    assert not {"A_SECRET", "PYTHONPATH", "VIRTUAL_ENV"} & given


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"python": "/nowhere/python"}, "`environments.theirs.python`: /nowhere/python is not a program."),
        ({"python": ""}, "`environments.theirs.python` is not set."),
        ({"module": "/nowhere/mine.py"}, "`environments.theirs.module`: there is no /nowhere/mine.py."),
        ({"variables": ["NOBODY_SET_THIS"]}, "`environments.theirs.variables`: NOBODY_SET_THIS is not in the environ"),
        ({"module": "browsergym", "python": sys.executable}, "has no browsergym-core, or does not run."),
    ],
)
def test_what_is_missing_is_said_before_anything_is_spent(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(FlywheelError) as refused:
        environment(**keys).probes()[0].examine()
    assert problem in refused.value.problem


def test_a_module_that_there_is_not_is_refused_with_those_that_there_are(sentence: Sentences) -> None:
    with sentence.raises(ValidationError, "'gym'", VERSION=re.compile(r"(?<=pydantic.dev/)[\d.]+")):
        environment(module="gym")


def test_doctor_starts_each_task_twice(sentence: Sentences) -> None:
    looks, starts = environment().probes()
    assert str(SCRIPT) in looks.examine()
    assert starts.examine() == "1 task started"
    odd = environment(tasks={"play": {"instruction": "Play."}})
    with sentence.raises(FlywheelError, "environments.theirs.tasks.play", "'task'"):
        odd.probes()[1].examine()
