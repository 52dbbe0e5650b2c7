"""AndroidWorld's own package and android_env, on a demo phone in the place of an emulator.

`FLYWHEEL_ANDROIDWORLD` names the folder that `flywheel environments add androidworld` built (docs/androidworld.md), and
`FLYWHEEL_ANDROIDWORLD_PYTHON` its Python, if it is not in the work folder.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from environments.android.demo import DemoPhone, Reply
from environments.androidworld import emulator
from environments.androidworld.build import SCRIPT
from environments.androidworld.environment import AndroidWorldConfig, AndroidWorldEnvironment
from environments.chromium.browser import find_browser
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from environments.workers.processes import FOREIGN
from schemas import action as act
from schemas.failure import SandboxFailure, TrajectoryFailure
from schemas.observation import Outcome
from tests.tiers import lacks

FOLDER = os.environ.get("FLYWHEEL_ANDROIDWORLD", "")
ADB = shutil.which("adb")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not FOLDER,
        reason=lacks("no AndroidWorld in FLYWHEEL_ANDROIDWORLD", "flywheel environments add androidworld --from DIR"),
    ),
]
LAUNCHER = Path(__file__).parents[2] / "androidworld" / "demo_launcher.py"
ON_WIFI = (act.OpenApp(app_name="Settings"), act.Click(x=0.5, y=0.18))
"""Open the settings, and switch Wi-Fi."""
ANSWERS = {
    "getprop sys.boot_completed": "1", "getprop ro.debuggable": "1", "getprop ro.build.version.sdk": "33",
    "whoami": "root", "dumpsys window | grep mCurrentRotation": "mCurrentRotation=ROTATION_0",
    "dumpsys input | grep logicalFrame": "logicalFrame=[0, 0, 360, 640]",
    "dumpsys input | grep physicalFrame": "physicalFrame=[0, 0, 360, 640]",
}  # fmt: skip
"""What a demo phone lacks of the commands that AndroidWorld reads."""
SILENT = r"(:|date|ls -d|svc data|settings put (?!global wifi_on)|cmd|service call|am force-stop)( .*)?"


class EmulatorLike(DemoPhone):
    """A demo phone that answers the further commands of AndroidWorld's own code."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.lines: list[str] = []
        self.serial = "emulator-5554"
        self.package = "com.android.settings"

    async def _run(self, line: str) -> Reply:
        line = line.strip()
        self.lines.append(line)
        if line in ANSWERS:
            return f"{ANSWERS[line]}\n".encode(), 0
        if found := re.fullmatch("svc wifi (enable|disable)", line):
            return await super()._run(f"settings put global wifi_on {int(found[1] == 'enable')}")
        if line.startswith("am start") and self.package in line:
            return await super()._run("monkey -p org.flywheel.demo.settings -c android.intent.category.LAUNCHER 1")
        if line.startswith("pm list packages"):
            return f"package:{self.package}\n".encode(), 0
        if line.startswith("if [ -d"):
            return b"Does not exist\n", 0
        if line.startswith("dumpsys activity"):
            return b"", 0
        return (b"", 0) if re.fullmatch(SILENT, line) else await super()._run(line)


@asynccontextmanager
async def phone_and_world(tmp_path: Path) -> AsyncIterator[tuple[EmulatorLike, AndroidWorldEnvironment]]:
    """A phone, and the tasks of the real checkout on it."""
    folder = tmp_path / "androidworld"
    shutil.copytree(FOLDER, folder)
    shutil.copy(LAUNCHER, folder / "checkout" / "android_world" / "env" / "env_launcher.py")
    phone = await EmulatorLike.start(find_browser())
    patch = pytest.MonkeyPatch()
    patch.setattr(emulator, "SERVER_PORT", phone.port)
    adb = tmp_path / "adb"
    adb.write_text(f'#!/bin/sh\nif [ "$1" = -P ]; then shift 2; fi\nexec {ADB} -P {phone.port} "$@"\n')
    adb.chmod(0o755)
    try:
        with socket.create_server(("127.0.0.1", 0)) as grpc:
            given = {"folder": str(folder), "adb": str(adb), "grpc_ports": [grpc.getsockname()[1]]}
            python = os.environ.get("FLYWHEEL_ANDROIDWORLD_PYTHON", "")
            config = AndroidWorldConfig.model_validate({"kind": "androidworld", "python": python, **given})
            yield phone, AndroidWorldEnvironment("world", config)
    finally:
        patch.undo()
        await phone.end()


async def finished(sandbox: Sandbox) -> Outcome:
    verifier = verifier_of("openenv")
    assert verifier is not None
    await sandbox.conclude(act.Finished())
    return await sandbox.verify(verifier)


Play = Callable[[Sandbox, EmulatorLike], Awaitable[Any]]


def played(tmp_path: Path, template: str, seed: int, *plays: Play) -> list[Any]:
    """What each play of a task returns."""

    async def run() -> list[Any]:
        async with phone_and_world(tmp_path) as (phone, world), SandboxPool([world]) as pool:
            found = list[Any]()
            for play in plays:
                async with pool.lease(world.task(template), seed) as sandbox:
                    found.append(await play(sandbox, phone))
            return found

    return asyncio.run(run())


needs_phone = pytest.mark.skipif(not ADB, reason=lacks("no adb", "apt install adb"))


@needs_phone
@pytest.mark.usefixtures("real_browser")
def test_their_wifi_task_is_set_up_scored_and_torn_down_over_adb(tmp_path: Path) -> None:
    async def solved(sandbox: Sandbox, phone: EmulatorLike) -> Outcome:
        seen = await sandbox.observe()
        assert (seen.width, seen.height, seen.instruction) == (360, 640, "Turn wifi on.")
        for tap in ON_WIFI:
            assert await sandbox.perform(tap) is None
        assert (await sandbox.observe()).png != seen.png
        # AndroidWorld finds apps by the beginning of a name, so it would open WhatsApp, which is not installed.
        assert "no app 'Wallpapers'" in str(await sandbox.perform(act.OpenApp(app_name="Wallpapers")))
        return await finished(sandbox)

    async def untouched(sandbox: Sandbox, phone: EmulatorLike) -> Outcome:
        return await finished(sandbox)

    lines = list[str]()

    async def noted(sandbox: Sandbox, phone: EmulatorLike) -> None:
        lines.extend(phone.lines)

    outcomes = played(tmp_path, "SystemWifiTurnOn", 3, solved, untouched, noted)
    assert outcomes == [Outcome(True, 1.0), Outcome(True, 0.0), None]
    assert "date 1015153423.00" in lines and lines.count("svc wifi disable") == 3


@needs_phone
@pytest.mark.usefixtures("real_browser")
def test_an_app_that_is_missing_on_the_device_fails_the_start_before_their_setup(tmp_path: Path) -> None:
    async def nothing(sandbox: Sandbox, phone: EmulatorLike) -> None: ...

    with pytest.raises(SandboxFailure, match=r"no app markor \(net.gsantner.markor\)"):
        played(tmp_path, "MarkorCreateNote", 0, nothing)


@needs_phone
@pytest.mark.usefixtures("real_browser")
def test_a_phone_that_is_unplugged_is_a_failure_of_the_sandbox(tmp_path: Path) -> None:
    async def unplugged(sandbox: Sandbox, phone: EmulatorLike) -> tuple[str, str]:
        phone.state = ""
        with pytest.raises(TrajectoryFailure) as failure:
            await finished(sandbox)
        return failure.value.boundary, failure.value.reason

    ((boundary, reason),) = played(tmp_path, "SystemWifiTurnOn", 3, unplugged)
    assert boundary == "sandbox" and "emulator-5554 is gone: AdbControllerError" in reason


def asked(code: str) -> Any:
    """The result of code in AndroidWorld's Python, as JSON on the last line."""
    python = os.environ.get("FLYWHEEL_ANDROIDWORLD_PYTHON") or str(
        AndroidWorldEnvironment("world", AndroidWorldConfig(kind="androidworld", folder=FOLDER)).python
    )
    command = [
        python,
        "-W",
        "ignore",
        "-c",
        f"import sys; sys.path[:0] = {[f'{FOLDER}/checkout', str(FOREIGN)]}\n{code}",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.strip().splitlines()[-1])


PARAMETERS = """
import json
from android_world import registry, suite_utils
from {module} import task_of
theirs, ours = {{}}, {{}}
for family in registry.get_families():
    kinds = registry.TaskRegistry().get_registry(family)
    made = suite_utils.create_suite(kinds, 1, seed=30)
    for name in kinds:
        ours[name] = {{key: str(value)[:500] for key, value in task_of(name, 30, None).params.items()}}
        theirs[name] = {{key: str(value)[:500] for key, value in made[name][0].params.items()}}
print(json.dumps([theirs, ours]))
"""


def test_each_seed_has_the_parameters_of_their_runner_and_the_same_in_every_process() -> None:
    code = PARAMETERS.format(module=SCRIPT.stem)
    (theirs, ours), (_, again) = asked(code), asked(code)
    assert len(ours) > 200
    of_picture = {"SaveCopyOfReceiptTaskEval"}  # the text of a picture names its place in memory
    assert [name for name in ours if ours[name] != again[name] and name not in of_picture] == []
    of_time = {name for name in ours if ours[name] != theirs[name]} - of_picture
    assert of_time == {"MarkorCreateFolder"} and ours["MarkorCreateFolder"]["folder_name"] == "folder_20231015_153430"


ANSWERED = """
import json
from unittest import mock
from android_world.task_evals.information_retrieval import information_retrieval as ir, proto_utils
from androidworld_worker import AndroidWorld, task_of
scores = []
worker = AndroidWorld.__new__(AndroidWorld)
worker._env, worker._serial = mock.MagicMock(), "emulator-5554"
worker._require_alive = lambda reason: None
worker._answer = lambda **given: given
for name in ("SimpleCalendarLocationOfEvent", "SportsTrackerActivityDuration", "TasksCompletedTasksForDate"):
    worker._task = task = task_of(name, 30, None)
    for part in ("calendar_utils_ir", "task_app_utils", "activity_app_utils", "joplin_app_utils"):
        mock.patch.object(ir, part).start()
    with mock.patch("android_world.task_evals.task_eval.TaskEval.initialize_task"):
        task.initialize_task(worker._env)
    task.initialized = True
    expected = [str(one) for one in proto_utils.get_expected_answer(task.task)]
    for answer in (", ".join(expected), "", "nothing of the kind"):
        worker._env.interaction_cache = ""
        scores.append(worker.step({"type": "finished", "content": answer}).get("reward"))
print(json.dumps(scores))
"""


def test_answers_of_information_retrieval_are_checked_by_their_code() -> None:
    assert asked(ANSWERED) == [1.0, 0.0, 0.0] * 3


def test_the_list_has_their_step_limits() -> None:
    world = AndroidWorldEnvironment("world", AndroidWorldConfig(kind="androidworld", folder=FOLDER))
    of_benchmark = {name: one for name, one in world.entries.items() if "android_world" in one.tags}
    assert len(of_benchmark) == 116
    limits = {name: of_benchmark[name].max_steps for name in ("SystemWifiTurnOn", "SportsTrackerActivityDuration")}
    assert limits == {"SystemWifiTurnOn": 10, "SportsTrackerActivityDuration": 10}
    assert "hard" in of_benchmark["RecipeAddMultipleRecipesFromMarkor2"].tags
