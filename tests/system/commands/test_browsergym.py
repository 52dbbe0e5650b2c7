"""BrowserGym's own MiniWoB++ in a worker, where `FLYWHEEL_BROWSERGYM_PYTHON` names a Python that has it
(`flywheel environments add browsergym`, docs/sandboxes.md)."""

import asyncio
import io
import os
import signal
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.workers.environment import WorkerConfig, WorkerEnvironment
from schemas import action as act
from schemas.failure import SandboxFailure
from schemas.observation import Outcome
from tests.processes import mentioning
from tests.tiers import lacks

PYTHON = os.environ.get("FLYWHEEL_BROWSERGYM_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason=lacks("no BrowserGym in FLYWHEEL_BROWSERGYM_PYTHON", "flywheel environments add browsergym")
)


def environment(**keys: Any) -> WorkerEnvironment:
    tasks = {"click-test": {"instruction": "Click.", "reset": {"task": "browsergym/miniwob.click-test"}}}
    given = {"kind": "worker", "module": "browsergym", "python": PYTHON, "processes": 1, "tasks": tasks} | keys
    return WorkerEnvironment("theirs", WorkerConfig.model_validate(given))


def button(png: bytes) -> act.Click:
    """A click into the middle of the button, which is drawn in a light gray on white."""
    with Image.open(io.BytesIO(png)) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    gray = (abs(pixels - 239).max(axis=2) <= 2) & (np.arange(pixels.shape[0])[:, None] > 75)
    rows, columns = np.nonzero(gray)
    assert len(rows), "no button is to be seen"
    height, width = gray.shape
    return act.Click(x=float(np.median(columns)) / width, y=float(np.median(rows)) / height)


def test_its_click_test_is_solved_at_fractions_of_the_screen_with_every_seed() -> None:
    async def run() -> tuple[list[Outcome], set[tuple[int, int]]]:
        theirs, verifier = environment(), verifier_of("openenv")
        assert verifier is not None
        outcomes, sizes = list[Outcome](), set[tuple[int, int]]()
        async with SandboxPool([theirs]) as pool:
            for seed in range(10):
                async with pool.lease(theirs.task("click-test"), seed) as sandbox:
                    seen = await sandbox.observe()
                    sizes.add((seen.width, seen.height))
                    assert seen.instruction == "Click the button."
                    assert await sandbox.perform(button(seen.png)) is None
                    outcomes.append(await sandbox.verify(verifier))
        return outcomes, sizes

    outcomes, sizes = asyncio.run(run())
    assert outcomes == [Outcome(True, 1.0)] * 10
    assert sizes == {(498, 321)}


def test_a_worker_that_is_killed_in_an_episode_is_blameless_and_nothing_of_its_browsers_is_left() -> None:
    async def run() -> None:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            with pytest.raises(SandboxFailure, match="the worker browsergym ended at step"):
                async with pool.lease(theirs.task("click-test"), 1) as sandbox:
                    all_of_them = psutil.Process().children(recursive=True)
                    named = mentioning("browsergym_worker.py", all_of_them)
                    os.kill(named[-1].pid, signal.SIGKILL)
                    await sandbox.perform(act.Wait())
            assert len(all_of_them) > 4 and psutil.wait_procs(all_of_them, 5)[1] == []
            async with pool.lease(theirs.task("click-test"), 1) as sandbox:
                reason = await sandbox.perform(act.Navigate(content="nonsense://x"))
                assert reason is not None and "ERR_" in reason
                assert (await sandbox.observe()).instruction == "Click the button."

    before = {one.pid for one in psutil.Process().children(recursive=True)}
    asyncio.run(run())
    assert {one.pid for one in psutil.Process().children(recursive=True)} <= before
