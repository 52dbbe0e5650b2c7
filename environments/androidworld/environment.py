"""Run the tasks of an AndroidWorld checkout on emulators: its parameters, setups and success checks, in workers.

Each emulator has a worker (`environments/workers/foreign/androidworld_worker.py`), whose Python has AndroidWorld's
requirements. The checkout has the Apache License 2.0. This project contains nothing of it.
"""

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from common.process import home
from common.text import counted
from environments.android.actions import KEYBOARD, line_of
from environments.androidworld.build import BENCHMARK, CHECKOUT, PACKAGE, SCRIPT, TASKS
from environments.androidworld.emulator import Emulator, find_program
from environments.openenv.foreign import ForeignConfig, SeededConfig
from environments.workers.build import ANDROIDWORLD
from environments.workers.host import WorkerHost, WorkerProcess, WorkerSandbox
from environments.workers.processes import FOREIGN, PASSED, PythonConfig, PythonEnvironment, version_in
from schemas.action import Action, CallUser, Finished, OpenApp, Type, Wait
from schemas.config.section import Positive
from schemas.failure import FlywheelError, Probe, SandboxFailure, all_of
from schemas.tables.task import TaskEntry

ADD = "Run `flywheel environments add androidworld --from DIR` with your checkout of AndroidWorld."
PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
"""Variables for the download of android_env's accessibility app, at each start of a worker."""
LOCAL = "localhost,127.0.0.1"
"""Addresses without a proxy, since gRPC reads the same variables."""
Port = Annotated[int, Field(ge=1, le=65535)]


class AndroidWorldConfig(PythonConfig, SeededConfig):
    """Tasks of an AndroidWorld checkout on running emulators (docs/androidworld.md)."""

    start_timeout_s: Positive = 300.0
    """Maximum seconds to connect to an emulator, and to tear the last task down and set the next one up."""
    step_timeout_s: Positive = 120.0
    """Maximum seconds for an action and its screenshot, or for a success check."""
    folder: str = ""
    """Folder of the build; if not set, `androidworld` of the work folder."""
    adb: str = ""
    """Path of the program adb; if not set, that of the Android SDK or of `PATH`."""
    console_ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (5554,)
    """Console ports of the running emulators, each with one trajectory at a time. The emulator at 5554 is
    `emulator-5554` in `adb devices`."""
    grpc_ports: tuple[Port, ...] = (8554,)
    """Their gRPC ports (`emulator -grpc PORT`), in the same order."""
    settle_s: Annotated[float, Field(ge=0)] = 2.0
    """Seconds between an action and the wait for a stable screen, as in AndroidWorld's agent M3A."""

    @model_validator(mode="after")
    def _paired(self) -> "AndroidWorldConfig":
        if len(self.console_ports) != len(self.grpc_ports):
            raise ValueError("grpc_ports: give as many as console_ports, in the same order")
        ports = (*self.console_ports, *self.grpc_ports)
        if len(set(ports)) < len(ports):
            raise ValueError("console_ports, grpc_ports: name every port once")
        if odd := [port for port in self.console_ports if port % 2]:
            raise ValueError(f"console_ports: {odd[0]} is no console port: they are even, such as 5554")
        return self


class AndroidWorldMessages(ForeignConfig):
    """The messages of a worker with an emulator."""

    settle_s: float

    def fields_of(self, template: str) -> dict[str, Any]:
        """Returns the fields of `reset` for a task with any seed."""
        return {"task": template, "settle_s": self.settle_s}


class AndroidWorldSandbox(WorkerSandbox):
    """A task on an emulator; actions are sent as lines of the phone's shell."""

    has_tools = False

    def _written(self, action: Action) -> dict[str, Any]:
        if isinstance(action, Finished | CallUser | OpenApp | Wait):
            return action.model_dump()
        assert self._answer is not None
        width, height = self._answer.metadata["touch_size"]
        other_script = isinstance(action, Type) and not action.content.isascii()
        line = line_of(action, width, height, other_script)
        return {"type": action.type, "shell": line, "keyboard": KEYBOARD if other_script else ""}


class EmulatorHost(WorkerHost):
    """A worker of an emulator, which is checked before each start.

    Args:
        emulator: the emulator.
        examine: checks it; raises FlywheelError.
    """

    sandbox_class = AndroidWorldSandbox

    def __init__(self, examine: Callable[[], object], *worker: Any) -> None:
        super().__init__(*worker)
        self._examine = examine

    async def _launch(self) -> WorkerProcess:
        try:
            await asyncio.to_thread(self._examine)
        except FlywheelError as error:
            raise SandboxFailure(error.problem.rstrip(".")) from error
        return await super()._launch()


class AndroidWorldEnvironment(PythonEnvironment[AndroidWorldConfig]):
    """The tasks of the checkout that was built, on the config's emulators."""

    section = AndroidWorldConfig
    verifier = "openenv"
    sandbox_class = AndroidWorldSandbox
    origin = "AndroidWorld"
    license = "Apache-2.0"
    lists_elements = False

    def __init__(self, name: str, config: AndroidWorldConfig) -> None:
        super().__init__(name, config)
        self._turn = itertools.count()

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the checkout's tasks by name, with difficulty, apps and families as tags; raises FlywheelError
        without a build."""
        return {
            name: TaskEntry(
                instruction=task["instruction"],
                tags=tuple(tag for tag in (task["difficulty"], *task["apps"], *task["families"]) if tag),
                max_steps=task["max_steps"],
                deterministic=False,
            )
            for name, task in self._listed.items()
        }

    @property
    def installed(self) -> str:
        """Returns the name of the build."""
        return ANDROIDWORLD.name

    @property
    def hosts(self) -> int:
        """Number of emulators."""
        return len(self.config.console_ports)

    @property
    def folder(self) -> Path:
        """Folder of the build."""
        return Path(self.config.folder).expanduser().absolute() if self.config.folder else home() / ANDROIDWORLD.name

    def host(self) -> WorkerHost:
        """Makes a host for the next emulator, whose process is not started yet; raises FlywheelError if the build, its
        Python or adb is missing."""
        self._require()
        emulator = self._emulators[next(self._turn) % self.hosts]
        command = (str(self.python), "-B", "-u", str(SCRIPT))
        place = f"the worker of {emulator.serial}"
        return EmulatorHost(emulator.examine, place, self._messages, command, self._variables(emulator))

    def probes(self) -> Sequence[Probe]:
        """Checks the build, its Python, adb and each emulator; for `doctor`, that a task starts."""
        return (
            Probe("AndroidWorld", self._examined),
            Probe("emulators", self._reachable),
            Probe("task starts", self._starts, required=False),
        )

    @cached_property
    def _listed(self) -> Mapping[str, Any]:
        self._require_build()
        return json.loads((self.folder / TASKS).read_text("utf-8"))["tasks"]

    @property
    def _messages(self) -> AndroidWorldMessages:
        config = self.config
        return AndroidWorldMessages(
            kind=config.kind, start_timeout_s=config.start_timeout_s, step_timeout_s=config.step_timeout_s,
            lease_s=config.lease_s, seeds=config.seeds, settle_s=config.settle_s,
        )  # fmt: skip

    @property
    def _adb(self) -> Path:
        key = f"environments.{self.name}.adb"
        if self.config.adb:
            path = Path(self.config.adb).expanduser().absolute()
            if path.is_file() and os.access(path, os.X_OK):
                return path
            raise FlywheelError(f"`{key}`: {path} is not a program.", "Correct the path.")
        if (found := find_program("adb", "platform-tools/adb")) is None:
            raise FlywheelError(
                f"`{key}`: there is no adb.", "Install the Android SDK (docs/androidworld.md), or name the program."
            )
        return found

    @property
    def _emulators(self) -> Sequence[Emulator]:
        key, adb = f"environments.{self.name}", self._adb
        pairs = zip(self.config.console_ports, self.config.grpc_ports, strict=True)
        return [Emulator(key, adb, console, grpc) for console, grpc in pairs]

    def _variables(self, emulator: Emulator) -> Mapping[str, str]:
        given = {name: os.environ[name] for name in (*PASSED, *PROXIES) if name in os.environ}
        direct = ",".join(filter(None, (LOCAL, os.environ.get("no_proxy") or os.environ.get("NO_PROXY"))))
        return {
            **given,
            "no_proxy": direct,
            "NO_PROXY": direct,
            "TZ": "UTC",  # AndroidWorld sets the phone to UTC
            "PYTHONPATH": str(FOREIGN),
            "FLYWHEEL_ANDROIDWORLD": str(self.folder / CHECKOUT),
            "FLYWHEEL_ADB": str(emulator.adb),
            "FLYWHEEL_CONSOLE_PORT": str(emulator.console),
            "FLYWHEEL_GRPC_PORT": str(emulator.grpc),
        }

    def _require_build(self) -> None:
        for part in (TASKS, f"{CHECKOUT}/{PACKAGE}"):
            if not (self.folder / part).exists():
                raise FlywheelError(f"`environments.{self.name}.folder`: {self.folder} has no {part}.", ADD)

    def _require(self) -> None:
        self._require_build()
        self.require_python(ADD)
        _ = self._adb

    def _examined(self) -> str:
        self._require()
        package = ANDROIDWORLD.package
        if (version := version_in(self.python, package)) is None:
            raise FlywheelError(f"`environments.{self.name}.python`: {self.python} has no {package}.", ADD)
        return f"{counted(len(self._listed), 'task')} in {self.folder}, {package} {version}"

    def _reachable(self) -> str:
        found, errors = list[str](), list[FlywheelError]()
        for emulator in self._emulators:
            try:
                found.append(emulator.examine())
            except FlywheelError as error:
                errors.append(error)
        if errors:
            raise all_of(errors)
        return ", ".join(found)

    def _starts(self) -> str:
        template = next((name for name, task in self._listed.items() if BENCHMARK in task["families"]), "")
        return asyncio.run(self.started(template or next(iter(self._listed))))
