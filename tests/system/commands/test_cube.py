"""CUBE's MiniWoB++ in a worker, in process, where `FLYWHEEL_CUBE_PYTHON` names a Python that has it
(`flywheel environments add cube`, docs/sandboxes.md)."""

import asyncio
import os
from typing import Any

import psutil
import pytest

from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.workers.environment import WorkerConfig, WorkerEnvironment
from schemas import action as act
from schemas.action import Action
from schemas.failure import ActionFailure, SandboxFailure
from schemas.observation import Observation, Outcome
from tests.system.commands.test_browsergym import button
from tests.tiers import lacks

PYTHON = os.environ.get("FLYWHEEL_CUBE_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason=lacks("no CUBE in FLYWHEEL_CUBE_PYTHON", "flywheel environments add cube")
)
PLAYWRIGHT = {"_type": "cube_browser_tool.playwright_tool.PlaywrightConfig", "use_html": False}


def environment(**reset: Any) -> WorkerEnvironment:
    names = ("click-test", "enter-text")
    of = {"cube": "miniwob-cube", **reset}
    tasks = {name: {"instruction": "Do.", "reset": {"task": name, **of}} for name in names}
    given = {"kind": "worker", "module": "cube", "python": PYTHON, "processes": 1, "tasks": tasks}
    return WorkerEnvironment("cube", WorkerConfig.model_validate(given))


async def played(pool: SandboxPool, theirs: WorkerEnvironment, name: str, *actions: Action | None) -> Any:
    """How it ended and what was shown first; None is a click on the button."""
    verifier = verifier_of("openenv")
    assert verifier is not None
    async with pool.lease(theirs.task(name), 1) as sandbox:
        first = await sandbox.observe()
        for action in actions:
            assert await sandbox.perform(action or button(first.png)) is None
        return first, await sandbox.verify(verifier)


@pytest.mark.parametrize("tool", [{}, {"tool": PLAYWRIGHT}], ids=["BrowserGym's functions", "Playwright's tool"])
def test_a_task_is_solved_again_and_again_in_one_process_with_either_of_cubes_tools(tool: dict[str, Any]) -> None:
    async def run() -> list[tuple[Observation, Outcome]]:
        theirs = environment(**tool)
        async with SandboxPool([theirs]) as pool:
            return [await played(pool, theirs, "click-test", None) for _ in range(2)]

    before = {one.pid for one in psutil.Process().children(recursive=True)}
    for first, outcome in asyncio.run(run()):
        assert outcome == Outcome(True, 1.0)
        assert (first.width, first.height, first.instruction) == (332, 214, "Click the button.")
    assert {one.pid for one in psutil.Process().children(recursive=True)} <= before


def test_the_policys_end_is_evaluated_and_text_is_typed_into_what_has_the_focus() -> None:
    async def run() -> list[Any]:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            first, over = await played(pool, theirs, "enter-text", act.Wait())
            word = first.instruction.split('"')[1]
            field, submit = act.Click(x=60 / 332, y=75 / 214), act.Click(x=50 / 332, y=105 / 214)
            won = (await played(pool, theirs, "enter-text", field, act.Type(content=word), submit))[1]
            async with pool.lease(theirs.task("enter-text"), 1) as sandbox:
                await sandbox.conclude(act.Finished())
                verifier = verifier_of("openenv")
                assert verifier is not None
                return [over, won, await sandbox.verify(verifier)]

    assert asyncio.run(run()) == [Outcome(False, 0.0), Outcome(True, 1.0), Outcome(True, 0.0)]


def test_what_there_is_not_is_said_and_the_next_lease_works() -> None:
    async def run() -> None:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            with pytest.raises(ActionFailure, match="BrowserGym cannot perform terminal"):
                async with pool.lease(theirs.task("click-test"), 1) as sandbox:
                    await sandbox.perform(act.Terminal(command="ls"))
            assert (await played(pool, theirs, "click-test", None))[1] == Outcome(True, 1.0)
        for reset, problem in (({"cube": "no-cube"}, "no registered"), ({"benchmark": {"prt": 1}}, "no 'prt'")):
            wrong = environment(**reset)
            async with SandboxPool([wrong]) as pool:
                with pytest.raises(SandboxFailure, match=problem):
                    async with pool.lease(wrong.task("click-test"), 1):
                        pass

    asyncio.run(run())
