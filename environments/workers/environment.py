"""Run external environments, each in its own process and Python: BrowserGym, gymnasium, CUBE, or a script."""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from common.process import home
from environments.chromium.browser import find_browser
from environments.miniwob.environment import html_folder
from environments.openenv.foreign import ForeignConfig, ForeignEnvironment, first_of
from environments.workers.build import MODULES, python_in
from environments.workers.host import WorkerHost
from schemas.config.section import Count, Positive, Whole
from schemas.failure import FlywheelError, Probe
from schemas.observation import Observation
from schemas.tables.task import TaskEntry

FOREIGN = Path(__file__).with_name("foreign")
"""Folder of the scripts that run in another Python; this process imports none of them."""
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Variables that every worker gets."""
WITH_BROWSER = ("browsergym", "cube")
"""Modules that get the path of the Chromium on this machine."""
ASK_S = 30.0
"""Seconds that a Python may take to print its version."""


class WorkerConfig(ForeignConfig):
    """An environment in a separate process with its own Python (docs/sandboxes.md)."""

    start_timeout_s: Positive = 120.0
    """Maximum seconds to start a process or a task."""
    step_timeout_s: Positive = 60.0
    """Maximum seconds for an action and its screenshot."""
    module: Annotated[str, Field(min_length=1)]
    """`browsergym`, `gymnasium`, `cube`, or the path of your own script."""
    python: str = ""
    """Python with the environment's packages; if not set, that of `flywheel environments add`."""
    processes: Count = 2
    """Concurrent trajectories, each in its own process."""
    spares: Whole = 0
    """Warm spare processes that replace a dead process."""
    process_idle_s: Positive = 300.0
    """Seconds without a lease after which a process is ended, until it is needed again."""
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


class WorkerEnvironment(ForeignEnvironment[WorkerConfig]):
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
    def hosts(self) -> int:
        """Number of processes."""
        return self.config.processes

    @property
    def spares(self) -> int:
        """Number of processes kept warm."""
        return self.config.spares

    @property
    def host_idle_s(self) -> float:
        """Returns `process_idle_s`."""
        return self.config.process_idle_s

    @property
    def python(self) -> Path:
        """Returns the Python that has the module."""
        if self.config.python:
            return Path(self.config.python).expanduser().absolute()
        return python_in(home() / "workers" / self.config.module)

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
        if not (self.python.is_file() and os.access(self.python, os.X_OK)):
            hint = f"Run `flywheel environments add {module}`, or name a Python: {key}.python=PATH"
            raise FlywheelError(
                f"`{key}.python`: {self.python} is not a program.", hint if module in MODULES else "Correct the path."
            )
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


def version_in(python: Path, package: str) -> str | None:
    """Returns the version of a Python's package, or of the Python itself if no package is named; None if the package is
    missing or the Python does not run."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    asked = code if package else "import platform; print(platform.python_version())"
    try:
        answer = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, timeout=ASK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
