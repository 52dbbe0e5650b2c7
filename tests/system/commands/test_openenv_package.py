"""With OpenEnv's own package: its client and its validator against our server, our client against its server.

The package wants other versions of what this project stands on, so it lives in a Python of its own, which
`FLYWHEEL_OPENENV_PYTHON` names (docs/sandboxes.md says how to make it).
"""

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from environments.openenv.environment import OpenEnvConfig, OpenEnvEnvironment
from environments.pool import SandboxPool
from environments.registry import verifier_of
from schemas import action as act
from schemas.failure import TrajectoryFailure
from tests.tiers import lacks
from tests.unit.apps.sandboxes.served import served_apart, serving

PYTHON = os.environ.get("FLYWHEEL_OPENENV_PYTHON", "")
PEER = Path(__file__).parents[1] / "parts" / "openenv_peer.py"
pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason=lacks("no openenv in FLYWHEEL_OPENENV_PYTHON", "pip install openenv==0.10.0 (docs/sandboxes-for-verl.md)"),
)


def peer(*arguments: str, timeout: float = 120) -> str:
    done = subprocess.run([PYTHON, str(PEER), *arguments], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, process = f"http://127.0.0.1:{port}", subprocess.Popen([PYTHON, str(PEER), "serve", str(port)])
    try:
        until = time.monotonic() + 90
        while True:
            try:
                httpx.get(f"{url}/health").raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def button_of(url: str, **keys: Any) -> OpenEnvEnvironment:
    actions = {
        "click": {"kind": "press", "left": "{x_px}", "top": "{y_px}"},
        "wait": {"kind": "wait"},
        "navigate": {"kind": "crash"},
        "type": {"shout": "{content}"},
    }
    given = {"screenshot": "image", "instruction": "goal", "action_error": "trouble", "actions": actions, **keys}
    tasks = {"press": {"instruction": "Press the button."}}
    section = {"kind": "openenv", "url": url, "sessions": 2, "tasks": tasks, **given}
    return OpenEnvEnvironment("button", OpenEnvConfig.model_validate(section))


def test_openenvs_own_clients_play_our_sandboxes() -> None:
    with served_apart(serving(sandboxes=1)) as url:
        played = json.loads(peer("play", url, "20"))
    assert played["async"] == played["apart"] == [1.0] * 20
    assert played["sync"] == [1.0] * 20 + ["Server error: The episode is over: send `reset`. (code: EXECUTION_ERROR)"]


def test_openenvs_own_validator_passes_our_server() -> None:
    with served_apart(serving()) as url:
        command = [str(Path(PYTHON).with_name("openenv")), "validate", "--json", "--url", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["passed"]
    assert [one["passed"] for one in report["criteria"]] == [True] * 6


def test_we_play_an_environment_of_openenvs_own_classes(theirs: str) -> None:
    async def play() -> tuple[Any, ...]:
        environment, verifier = button_of(theirs), verifier_of("openenv")
        assert verifier is not None
        found = [await asyncio.to_thread(probe.examine) for probe in environment.probes()]
        rewards = []
        async with SandboxPool([environment]) as pool:
            for seed in range(20):
                async with pool.lease(environment.task("press"), seed) as sandbox:
                    seen = await sandbox.observe()
                    assert (seen.width, seen.height, seen.instruction) == (200, 100, "Press blue.")
                    assert await sandbox.perform(act.Wait()) == "nobody can wait"
                    await sandbox.perform(_blue(seen.png))
                    rewards.append(await sandbox.verify(verifier))
        return found, rewards

    found, rewards = asyncio.run(play())
    assert found == [f"{theirs} is healthy", "1 task started"]
    assert all(one.reaches(1.0) for one in rewards) and len(rewards) == 20


@pytest.mark.parametrize(
    ("action", "boundary", "reason"),
    [
        (act.Navigate(content="a"), "sandbox", "the environment crashed (EXECUTION_ERROR)"),
        (act.Type(content="a"), "action", "the environment takes no such type: Invalid message: kind: Field required"),
        (act.PressHome(), "action", "this environment cannot perform press_home"),
    ],
)
def test_its_errors_are_blamed_on_a_boundary_and_the_next_lease_works(
    theirs: str, action: act.Action, boundary: str, reason: str
) -> None:
    async def play() -> TrajectoryFailure:
        environment = button_of(theirs, sessions=1)
        async with SandboxPool([environment]) as pool:
            with pytest.raises(TrajectoryFailure) as failed:
                async with pool.lease(environment.task("press"), 1) as sandbox:
                    await sandbox.perform(action)
            async with pool.lease(environment.task("press"), 1) as sandbox:
                await sandbox.perform(_blue((await sandbox.observe()).png))
        return failed.value

    failure = asyncio.run(play())
    assert failure.boundary == boundary
    assert reason in failure.reason


def test_more_trajectories_than_its_sessions_wait_for_one(theirs: str) -> None:
    async def play() -> int:
        environment = button_of(theirs, sessions=4)
        async with SandboxPool([environment]) as pool:

            async def one(seed: int) -> int:
                async with pool.lease(environment.task("press"), seed) as sandbox:
                    await asyncio.sleep(0.3)
                    await sandbox.perform(act.Wait())
                return 1

            return sum(await asyncio.gather(*(one(seed) for seed in range(6))))

    assert asyncio.run(play()) == 6


def _blue(png: bytes) -> act.Click:
    """A click into what is blue."""
    import io

    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        pixels = picture.convert("RGB")
    places = ((x, y) for y in range(pixels.height) for x in range(pixels.width))
    x, y = next(place for place in places if pixels.getpixel(place) == (0, 0, 255))
    return act.Click(x=(x + 10) / pixels.width, y=(y + 10) / pixels.height)
