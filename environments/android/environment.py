"""Run phones as an environment: real ones and emulators behind an adb server, or demo phones in a browser."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from common.text import counted
from environments.android.actions import DragBy
from environments.android.adb import Adb
from environments.android.demo import APPS, SERIAL, TASKS, DemoPhone
from environments.android.sandbox import AndroidSandbox
from environments.android.task import PhoneTask
from environments.chromium.browser import browser_version, find_browser
from environments.environment import Environment
from environments.host import Host, ProcessHost
from environments.openenv.mapping import png_of
from environments.sandbox import Sandbox
from schemas.config.section import Positive, Whole
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, Probe, SandboxFailure, UsageError, all_of
from schemas.tables.task import JUDGED, TaskEntry

FIXES: Mapping[str, str] = {
    "": "Plug it in, or start the emulator, and list phones with `adb devices`.",
    "unauthorized": "Unlock the phone and allow USB debugging for this computer.",
    "offline": "Plug the phone in again, or restart the emulator.",
    "no permissions": "Install the udev rules of Android (`apt install android-sdk-platform-tools-common`).",
}
"""Fixes by the state of a phone; the empty state is that of a phone that is not listed."""


SERVER = "127.0.0.1:5037"
"""Host and port on which adb's server listens by default."""


class AndroidConfig(EnvironmentConfig):
    """Phones and emulators over adb, or demo phones (docs/phones.md)."""

    start_timeout_s: Positive = 120.0
    """Maximum seconds to reset a phone and set up a task."""
    step_timeout_s: Positive = 45.0
    """Maximum seconds for an action or a screenshot."""
    serials: tuple[str, ...] | Literal["auto"] = "auto"
    """Serials of the phones, each with one trajectory at a time; `auto`: all phones that `adb devices` lists as
    `device`."""
    server: str = SERVER
    """Host and port of the adb server, which is never started or ended."""
    demo_phones: Whole = 0
    """Number of demo phones, which need a headless browser instead of `serials` and an adb server."""
    browser: str | None = None
    """For demo phones: path of a headless Chromium; if not set, the environment searches for it."""
    apps: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)
    """Packages by name of the app, such as `Chrome = "com.android.chrome"`; a package is its own name, too."""
    snapshot: str = ""
    """Snapshot that every emulator loads before a trajectory, by the program `adb`."""
    force_stop: tuple[str, ...] = ()
    """Packages that are stopped before a trajectory."""
    clear: tuple[str, ...] = ()
    """Packages whose data are deleted before a trajectory."""
    drag_by: DragBy = "swipe"
    """Command of a drag. `swipe`: a finger that moves at once, which scrolls. `draganddrop`: after a long press, which
    moves an icon."""
    settle_s: Annotated[float, Field(ge=0)] = 1.0
    """Seconds between an action and the screenshot."""
    wait_s: Positive = 2.0
    """Duration of `wait`, in seconds, if the policy names none."""
    tasks: dict[str, PhoneTask] = {}  # noqa: RUF012  (pydantic copies it)
    """Tasks by template."""

    @field_validator("server")
    @classmethod
    def _address(cls, server: str) -> str:
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{server!r} is not an address such as 127.0.0.1:5037")
        return server

    @model_validator(mode="after")
    def _whole(self) -> "AndroidConfig":
        if isinstance(self.serials, tuple):
            if not self.serials or len(set(self.serials)) < len(self.serials):
                raise ValueError("serials: name every phone once, or write `auto`")
            real = [one for one in self.serials if not one.startswith("emulator-")]
            if self.snapshot and real:
                raise ValueError(f"snapshot: {real[0]} is no emulator: the serial of an emulator is emulator-PORT")
        if self.demo_phones and (self.serials != "auto" or self.snapshot):
            raise ValueError("demo_phones: a demo phone has neither serials nor a snapshot")
        if self.demo_phones and self.server != SERVER:
            raise ValueError("demo_phones: demo phones have an adb server of their own, so `server` has no effect")
        if self.demo_phones == 0 and self.browser:
            raise ValueError("browser: only demo phones need a browser")
        for name, task in self.tasks.items():
            if not (task.check or task.verifier):
                raise ValueError(f"tasks.{name}: give `check`, a command that succeeds at the goal, or `verifier`")
            if task.matches is not None and not task.check:
                raise ValueError(f"tasks.{name}: `matches` needs `check`")
            if task.check and task.verifier == JUDGED:
                raise ValueError(f"tasks.{name}: a judge scores the task, so `check` is not used")
        return self


class PhoneHost(Host):
    """A phone behind an adb server; it is alive while the server lists it as `device`.

    Args:
        adb: client of the server.
        serial: the phone.
        make: makes a sandbox of the phone.
    """

    def __init__(self, adb: Adb, serial: str, make: Callable[[], Sandbox]) -> None:
        self._adb, self._serial, self._make = adb, serial, make
        self._alive = False

    @property
    def alive(self) -> bool:
        """Whether the phone could be used at the last check."""
        return self._alive

    async def healthy(self) -> bool:
        """Asks the server for the phone's state."""
        try:
            state = (await asyncio.to_thread(self._adb.devices)).get(self._serial, "")
        except SandboxFailure:
            state = ""
        self._alive = state == "device"
        return self._alive

    async def revive(self) -> bool:
        """Checks whether the server lists the phone again; raises SandboxFailure if not."""
        state = (await asyncio.to_thread(self._adb.devices)).get(self._serial, "")
        self._alive = state == "device"
        if not self._alive:
            raise SandboxFailure(f"phone {self._serial} is {state or 'not connected'}")
        return False

    def sandbox(self) -> Sandbox:
        """Makes a sandbox of the phone."""
        return self._make()

    async def close(self) -> None:
        """Forgets the phone, which keeps running."""
        self._alive = False


class DemoHost(ProcessHost[DemoPhone]):
    """A demo phone, which is replaced when its browser dies.

    Args:
        path: the browser.
        make: makes a sandbox from the client of the phone's server.
    """

    def __init__(self, path: Path, make: Callable[[Adb], Sandbox]) -> None:
        super().__init__()
        self._path, self._make = path, make

    async def _launch(self) -> DemoPhone:
        return await DemoPhone.start(self._path)

    async def _ask(self, process: DemoPhone) -> object:
        return await process.ask()

    def sandbox(self) -> Sandbox:
        """Makes a sandbox of the phone."""
        assert self._process is not None
        return self._make(Adb(port=self._process.port))


class AndroidEnvironment(Environment[AndroidConfig]):
    """The config's tasks on phones, or also the built-in tasks on demo phones."""

    section = AndroidConfig
    verifier = "android"
    sandbox_class = AndroidSandbox
    origin = "flywheel android"
    lists_elements = False

    def __init__(self, name: str, config: AndroidConfig) -> None:
        super().__init__(name, config)
        self._turn = itertools.count()

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns tasks by template."""
        return self._tasks

    @property
    def hosts(self) -> int:
        """Number of phones; 1 if `auto` finds none, so that the check of the requirements can name the problem."""
        if self.config.demo_phones:
            return self.config.demo_phones
        try:
            return len(self._serials)
        except FlywheelError:
            return 1

    def host(self) -> Host:
        """Returns the host of the next phone; raises FlywheelError if there is none."""
        if self.config.demo_phones:
            config = self.config.model_copy(update={"clear": (*self.config.clear, *APPS.values())})
            return DemoHost(self._browser(), lambda adb: self._sandbox(adb, SERIAL, config))
        serial = self._serials[next(self._turn) % self.hosts]
        return PhoneHost(self._adb, serial, lambda: self._sandbox(self._adb, serial, self.config))

    def probes(self) -> Sequence[Probe]:
        """Checks that phones can be used, or that there is a browser for demo phones."""
        if self.config.demo_phones:
            return (Probe("browser", lambda: f"{browser_version(self._browser())} at {self._browser()}"),)
        return (Probe("phones", self._usable), Probe("phones' screens", self._screens, required=False))

    @property
    def _tasks(self) -> Mapping[str, PhoneTask]:
        return {**(TASKS if self.config.demo_phones else {}), **self.config.tasks}

    @property
    def _adb(self) -> Adb:
        host, _, port = self.config.server.rpartition(":")
        return Adb(host, int(port))

    @cached_property
    def _serials(self) -> Sequence[str]:
        """Lists the phones to use; asks the server once if the config names none."""
        if self.config.serials != "auto":
            return self.config.serials
        states = self._states()
        found = [serial for serial, state in states.items() if state == "device"]
        if self.config.snapshot and (real := [one for one in found if not one.startswith("emulator-")]):
            raise UsageError(
                f"`environments.{self.name}.snapshot`: {real[0]} is no emulator.",
                f"Name the emulators in environments.{self.name}.serials.",
            )
        if not found:
            raise all_of([self._unusable(one, state) for one, state in states.items()] or [self._unusable("", "")])
        return found

    def _states(self) -> Mapping[str, str]:
        try:
            return self._adb.devices()
        except SandboxFailure as error:
            raise FlywheelError(
                f"`environments.{self.name}.server`: {error.reason}.", "Start the server with `adb start-server`."
            ) from error

    def _unusable(self, serial: str, state: str) -> FlywheelError:
        named = f"phone {serial} is {state or 'not connected'}" if serial else "no phone is connected"
        return FlywheelError(f"`environments.{self.name}.serials`: {named}.", FIXES.get(state.partition(" (")[0], ""))

    def _usable(self) -> str:
        states = self._states()
        if wrong := [self._unusable(one, states.get(one, "")) for one in self._serials if states.get(one) != "device"]:
            raise all_of(wrong)
        if not self._tasks:
            raise FlywheelError(
                f"`environments.{self.name}.tasks` names no task.",
                f"Write [environments.{self.name}.tasks.NAME] with its instruction and check.",
            )
        return f"{counted(len(self._serials), 'phone')}: {', '.join(self._serials)}"

    def _screens(self) -> str:
        sizes = dict[str, None]()
        for serial in self._serials:
            try:
                _, width, height = png_of(self._adb.exec_out(serial, "screencap -p"))
            except (SandboxFailure, ValueError) as error:
                why = error.reason if isinstance(error, SandboxFailure) else f"the screenshot {error}"
                raise FlywheelError(f"`environments.{self.name}.serials`: phone {serial}: {why}.") from error
            sizes[f"{width} x {height}"] = None
        return f"{', '.join(sizes)} pixels"

    def _sandbox(self, adb: Adb, serial: str, config: AndroidConfig) -> Sandbox:
        given = {name.strip().lower(): package for name, package in config.apps.items()}
        return AndroidSandbox(config, adb, serial, self._tasks, {**(APPS if config.demo_phones else {}), **given})

    def _browser(self) -> Path:
        return find_browser(self.config.browser, f"environments.{self.name}.browser")
