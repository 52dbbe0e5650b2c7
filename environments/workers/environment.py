"""Run external environments, each in its own process and Python: BrowserGym, gymnasium, CUBE, or a script."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from environments.chromium.browser import find_browser
from environments.miniwob.environment import html_folder
from environments.openenv.foreign import ForeignConfig, ForeignEnvironment, first_of
from environments.workers.build import MODULES
from environments.workers.host import WorkerHost
from environments.workers.processes import FOREIGN, PASSED, ProcessConfig, ProcessEnvironment, version_in
from schemas.failure import FlywheelError, Probe
from schemas.observation import Observation
from schemas.tables.task import TaskEntry

WITH_BROWSER = ("browsergym", "cube")
"""Modules that get the path of the Chromium on this machine."""


class WorkerConfig(ProcessConfig, ForeignConfig):
    """An environment in a separate process with its own Python (docs/sandboxes.md)."""

    module: Annotated[str, Field(min_length=1)]
    """`browsergym`, `gymnasium`, `cube`, or the path of your own script."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that the process gets in addition to the usual variables."""

    @field_validator("module")
    @classmethod
    def _a_module(cls, module: str) -> str:
        if module not in MODULES and not module.endswith(".py"):
            raise ValueError(f"there is no {module!r}: there are {', '.join(MODULES)}, and scripts (a path to a .py)")
        return module

    def takes(self, template: str) -> frozenset[str]:
        """The action types of gymnasium tasks, whose environments take numbers: keys, and `wait` if a number is set for
        it."""
        if self.actions or self.module != "gymnasium":
            return super().takes(template)
        return frozenset(("hotkey",) if self.fields_of(template).get("idle") is None else ("hotkey", "wait"))

    def keys_of(self, template: str) -> tuple[str, ...]:
        """Returns the keys that a task of gymnasium accepts."""
        keys = self.fields_of(template).get("keys") if self.module == "gymnasium" else None
        return tuple(keys) if isinstance(keys, Mapping) else ()


class WorkerEnvironment(ProcessEnvironment[WorkerConfig], ForeignEnvironment[WorkerConfig]):
    """The tasks that the config names, in workers."""

    section = WorkerConfig

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the tasks of the config; an instruction names the task's keys, as in games."""
        return {template: _naming(entry, self.config.keys_of(template)) for template, entry in super().entries.items()}

    @property
    def lineage(self) -> str:
        """Returns the module's name and version."""
        return f"worker {self._module}"

    @property
    def installed(self) -> str:
        """Returns the module."""
        return self.config.module

    def host(self) -> WorkerHost:
        """Makes a host whose process is not started yet; raises FlywheelError if its Python or its script does not
        exist."""
        self._require()
        return WorkerHost(f"the worker {self._module}", self.config, self._command, self._variables)

    def probes(self) -> Sequence[Probe]:
        """Checks that the Python has the module; for `doctor`, that its tasks start, and look the same twice if
        deterministic."""
        return (
            Probe(f"worker {self._module}", self._examined),
            Probe("worker starts", lambda: asyncio.run(self.starts()), required=False),
        )

    async def seen(self, template: str, seed: int) -> Observation:
        """Returns the first observation of a task in a new process."""
        host = self.host()
        try:
            await host.revive()
            return await first_of(host.sandbox(), self.task(template), seed)
        finally:
            await host.close()

    @property
    def _module(self) -> str:
        return self.config.module if self.config.module in MODULES else Path(self.config.module).stem

    @property
    def _script(self) -> Path:
        if self.config.module in MODULES:
            return FOREIGN / f"{self.config.module}_worker.py"
        return Path(self.config.module).expanduser().absolute()

    @property
    def _command(self) -> tuple[str, ...]:
        return str(self.python), "-B", "-u", str(self._script)

    @cached_property
    def _variables(self) -> Mapping[str, str]:
        """Returns the variables that a worker gets from this process's environment, and the paths of the installed
        browser and pages."""
        given = {name: os.environ[name] for name in (*PASSED, *self.config.variables) if name in os.environ}
        given["PYTHONPATH"] = str(FOREIGN)
        if self.config.module in WITH_BROWSER:
            given.setdefault("FLYWHEEL_BROWSER", str(find_browser(key="FLYWHEEL_BROWSER")))
        if self.config.module == "browsergym":
            given.setdefault("MINIWOB_URL", f"{html_folder().as_uri()}/")
        return given

    def _require(self) -> None:
        key, module = f"environments.{self.name}", self.config.module
        if not self._script.is_file():
            raise FlywheelError(f"`{key}.module`: there is no {self._script}.", "Write the path of a script.")
        if module not in MODULES and not self.config.python:
            raise FlywheelError(f"`{key}.python` is not set.", "Name the Python that is to run the script.")
        hint = f"Run `flywheel environments add {module}`, or name a Python: {key}.python=PATH"
        self.require_python(hint if module in MODULES else "Correct the path.")
        if missing := [name for name in self.config.variables if name not in os.environ]:
            raise FlywheelError(f"`{key}.variables`: {missing[0]} is not in the environment.", "Set it.")

    def _examined(self) -> str:
        self._require()
        package = MODULES[self.config.module].package if self.config.module in MODULES else ""
        found = version_in(self.python, package)
        if found is None:
            raise FlywheelError(
                f"`environments.{self.name}.python`: {self.python} has no {package}, or does not run.",
                f"Run `flywheel environments add {self.config.module}`.",
            )
        _ = self._variables
        return f"{package} {found} in {self.python}" if package else f"{self.python} {found}, {self._script}"


def _naming(entry: TaskEntry, keys: Sequence[str]) -> TaskEntry:
    if not keys or "Keys: " in entry.instruction:
        return entry
    return entry.model_copy(update={"instruction": f"{entry.instruction} Keys: {', '.join(keys)}."})
