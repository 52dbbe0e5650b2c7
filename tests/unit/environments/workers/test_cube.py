"""CUBE's tasks in a worker, with stand-ins for its classes (its own package: tests/system/commands/test_cube.py)."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from environments.workers.environment import WorkerConfig, WorkerEnvironment
from schemas import action as act
from schemas.failure import ActionFailure, SandboxFailure
from schemas.observation import Outcome

SCRIPT = Path(__file__).with_name("standin_cube.py")


def environment(**reset: Any) -> WorkerEnvironment:
    of = {"cube": "lamps-cube", "task": "lamp", **reset}
    tasks = {"lamp": {"instruction": "", "reset": of}}
    given = {"kind": "worker", "module": str(SCRIPT), "python": sys.executable, "processes": 1, "tasks": tasks}
    return WorkerEnvironment("lamps", WorkerConfig.model_validate(given))


async def verdict(sandbox: Sandbox) -> Outcome:
    verifier = verifier_of("openenv")
    assert verifier is not None
    return await sandbox.verify(verifier)


@pytest.mark.parametrize("stops", [True, False], ids=["final_step", "no final_step"])
def test_a_task_is_evaluated_when_the_policy_ends_it_whether_it_has_a_final_step_or_not(stops: bool) -> None:
    async def run() -> list[Any]:
        theirs = environment(tool={"stops": stops})
        async with SandboxPool([theirs]) as pool:
            found = list[Any]()
            for clicks in (True, False):
                async with pool.lease(theirs.task("lamp"), 7) as sandbox:
                    seen = await sandbox.observe()
                    assert (seen.width, seen.height) == (40, 30)
                    assert seen.instruction == "Light lamp 7 at a port of its own: True."
                    if clicks:
                        await sandbox.perform(act.Click(x=0.5, y=0.5))
                        assert (await verdict(sandbox)).done is False
                    await sandbox.conclude(act.Finished(content="done"))
                    found.append(await verdict(sandbox))
            return found

    assert asyncio.run(run()) == [Outcome(True, 1.0), Outcome(True, 0.0)]


def test_what_comes_to_nothing_is_said_and_what_the_task_has_not_is_the_policys_failure() -> None:
    async def run() -> None:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            async with pool.lease(theirs.task("lamp"), 1) as sandbox:
                assert await sandbox.perform(act.Hotkey(key="ctrl c")) == "Failed: no clipboard"
                assert await sandbox.perform(act.Hotkey(key="escape")) == "it has no escape"
                assert await sandbox.perform(act.Wait()) is None
            for action, problem in ((act.Type(content="x"), "no keyboard_type"), (act.PressHome(), "cannot perform")):
                with pytest.raises(ActionFailure, match=problem):
                    async with pool.lease(theirs.task("lamp"), 1) as sandbox:
                        await sandbox.perform(action)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("reset", "problem"),
    [
        ({"cube": "no-cube"}, "Package 'no-cube' has no registered entry point"),
        ({"task": "sun"}, "lamps-cube has no task 'sun': it has lamp"),
        ({"tusk": 1}, "`reset` has no 'tusk'"),
        ({"benchmark": {"prt": 1}}, "`reset.benchmark` has no 'prt': it has port"),
    ],
)
def test_a_package_a_task_or_a_field_that_there_is_not_is_named(reset: dict[str, Any], problem: str) -> None:
    async def run() -> None:
        theirs = environment(**reset)
        async with SandboxPool([theirs]) as pool, pool.lease(theirs.task("lamp"), 1):
            pass

    with pytest.raises(SandboxFailure, match=problem):
        asyncio.run(run())
