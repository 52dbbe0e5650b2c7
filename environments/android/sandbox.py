"""Run one trajectory on one phone: reset it, set the task up, act through its shell, and check the result there."""

import asyncio
from collections.abc import Mapping
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING

from common.process import theirs
from common.text import some_of
from environments.android.actions import KEYBOARD, line_of
from environments.android.adb import Adb, ShellResult
from environments.android.task import PhoneTask
from environments.openenv.mapping import png_of
from environments.sandbox import Sandbox
from environments.verifier import OwnOutcome
from schemas import action as act
from schemas.failure import SandboxFailure, TrajectoryFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask

if TYPE_CHECKING:
    from environments.android.environment import AndroidConfig

POLL_S = 0.5
"""Seconds between two checks of a phone that loads a snapshot."""


class AndroidSandbox(Sandbox):
    """One task on one phone.

    Args:
        config: the section.
        adb: client of the server.
        serial: the phone.
        tasks: the environment's tasks, by template.
        apps: packages by the lower-case name of their app.
    """

    _task: PhoneTask

    def __init__(
        self, config: "AndroidConfig", adb: Adb, serial: str, tasks: Mapping[str, PhoneTask], apps: Mapping[str, str]
    ) -> None:
        super().__init__(config)
        self._config, self._adb, self._serial, self._tasks, self._apps = config, adb, serial, tasks, apps
        self._size = (0, 0)
        self._keyboard_before = ""
        self._keyboard = False

    async def outcome(self) -> Outcome:
        """Runs the task's check; raises TrajectoryFailure for a task without one."""
        if not self._task.check:
            raise TrajectoryFailure("verifier", "the task has no check")
        met = self._task.is_met(await self._shell(self._task.check))
        return Outcome(done=met, reward=float(met))

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._task = self._tasks[task.template]
        self._instruction, self._scripted = task.instruction, iter(self._task.script)
        await self._reset()
        await self._take_keyboard()
        await self._done("input keyevent 3")
        for command in self._task.setup:
            await self._done(command)
        if self._task.app and (why := await self._open(self._task.app)):
            raise SandboxFailure(f"task {task.template}: {why}")
        await asyncio.sleep(self._config.settle_s)
        await self._observe(False)

    async def _reset(self) -> None:
        if self._config.snapshot:
            await self._load(self._config.snapshot)
        for package in self._config.force_stop:
            await self._done(f"am force-stop {quote(package)}")
        for package in self._config.clear:
            await self._done(f"pm clear {quote(package)}")

    async def _load(self, snapshot: str) -> None:
        """Loads a snapshot by the program `adb`, which has the key of the emulator's console."""
        command = ["adb", "-H", self._adb.host, "-P", str(self._adb.port), "-s", self._serial]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, "emu", "avd", "snapshot", "load", snapshot, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=theirs(),
            )  # fmt: skip
        except OSError as error:
            raise SandboxFailure(f"`snapshot` needs the program adb: {error.strerror}") from error
        try:
            out = (await process.communicate())[0].decode(errors="replace").strip()
        except BaseException:
            process.kill()
            raise
        if process.returncode or "KO" in out:  # the program exits 0 for a refused command
            raise SandboxFailure(f"phone {self._serial} did not load snapshot {snapshot}: {out[-200:]}")
        while (await asyncio.to_thread(self._adb.devices)).get(self._serial) != "device":
            await asyncio.sleep(POLL_S)

    async def _take_keyboard(self) -> None:
        """Makes ADBKeyboard the phone's keyboard, if it is installed."""
        self._keyboard = KEYBOARD in (await self._done("ime list -a -s")).out.split()
        if self._keyboard:
            self._keyboard_before = (await self._done("settings get secure default_input_method")).out.strip()
            await self._done(f"ime enable {KEYBOARD} && ime set {KEYBOARD}")

    async def _observe(self, elements: bool) -> Observation:
        png = await asyncio.to_thread(self._adb.exec_out, self._serial, "screencap -p")
        try:
            png, width, height = png_of(png)
        except ValueError as error:
            raise SandboxFailure(f"phone {self._serial}: the screenshot {error}: {png[:80]!r}") from error
        self._size = width, height
        return Observation(png, width, height, self._instruction)

    async def _perform(self, action: act.Action) -> str | None:
        if isinstance(action, act.Wait):
            await asyncio.sleep(self._config.wait_s if action.seconds is None else action.seconds)
            return None
        if isinstance(action, act.OpenApp):
            why = await self._open(action.app_name)
        else:
            answer = await self._shell(line_of(action, *self._size, self._keyboard, self._config.drag_by))
            why = f"the phone did not perform {action.type}: {_last(answer)}" if answer.code else None
        await asyncio.sleep(self._config.settle_s)
        return why

    async def _open(self, name: str) -> str | None:
        """Opens an app by its name in `apps` or its package; returns the reason if it cannot."""
        package = self._apps.get(name.strip().lower(), name.strip())
        answer = await self._shell(f"monkey -p {quote(package)} -c android.intent.category.LAUNCHER 1")
        if not answer.code and "No activities found" not in answer.out:
            return None
        listed = (await self._done("pm list packages")).out.split()
        known = [*self._apps, *(one.removeprefix("package:") for one in listed)]
        near = get_close_matches(name.strip().lower(), known, 3, 0.4)
        return f"the phone has no app {name!r}; " + (f"the nearest: {', '.join(near)}" if near else some_of(known))

    async def _stop(self) -> None:
        before, self._keyboard_before = self._keyboard_before, ""
        if before and before not in ("null", KEYBOARD):
            await self._shell(f"ime set {quote(before)}")

    async def _done(self, command: str) -> ShellResult:
        """Runs a command of the reset or the setup; raises SandboxFailure if it fails."""
        answer = await self._shell(command)
        if answer.code:
            raise SandboxFailure(f"phone {self._serial}: `{command}` ended with {answer.code}: {_last(answer)}")
        return answer

    async def _shell(self, command: str) -> ShellResult:
        return await asyncio.to_thread(self._adb.shell, self._serial, command)


class AndroidReward(OwnOutcome):
    """Rewards 1 as soon as the task's check succeeds, and 0 before."""

    reads = AndroidSandbox


def _last(answer: ShellResult) -> str:
    return (answer.out.strip().splitlines() or ["no output"])[-1][:200]
