"""Share the config keys and the processes of environments that run in a Python of their own."""

import os
import subprocess
from abc import abstractmethod
from pathlib import Path
from typing import TypeVar

from common.process import home
from environments.environment import Environment
from environments.openenv.foreign import first_of
from environments.workers.build import python_in
from environments.workers.host import WorkerHost
from schemas.config.section import Count, Positive, Whole
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, TrajectoryFailure

FOREIGN = Path(__file__).with_name("foreign")
"""Folder of the scripts that run in another Python; this process imports none of them."""
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Variables that every worker gets."""
ASK_S = 30.0
"""Seconds that a Python may take to print its version."""


class PythonConfig(EnvironmentConfig):
    """Keys of an environment that runs in a Python of its own."""

    start_timeout_s: Positive = 120.0
    """Maximum seconds to start a process or a task."""
    step_timeout_s: Positive = 60.0
    """Maximum seconds for an action and its screenshot, or for a judge."""
    python: str = ""
    """Python with the environment's packages; if not set, that of `flywheel environments add`."""
    process_idle_s: Positive = 300.0
    """Seconds without a lease after which a process is ended, until it is needed again."""


class ProcessConfig(PythonConfig):
    """Keys of an environment that starts any number of processes."""

    processes: Count = 2
    """Concurrent trajectories, each in its own process."""
    spares: Whole = 0
    """Warm spare processes that replace a dead process."""


AnyPython = TypeVar("AnyPython", bound=PythonConfig)
AnyProcess = TypeVar("AnyProcess", bound=ProcessConfig)


class PythonEnvironment(Environment[AnyPython]):
    """An environment whose hosts are workers."""

    @property
    @abstractmethod
    def installed(self) -> str:
        """Name of its Python in the work folder, as `flywheel environments add` builds it."""

    @property
    def host_idle_s(self) -> float:
        """Returns `process_idle_s`."""
        return self.config.process_idle_s

    @property
    def python(self) -> Path:
        """Returns the Python that has the environment's packages."""
        if self.config.python:
            return Path(self.config.python).expanduser().absolute()
        return python_in(home() / "workers" / self.installed)

    @abstractmethod
    def host(self) -> WorkerHost:
        """Makes a host whose process is not started yet; raises FlywheelError if a requirement is missing."""

    def require_python(self, hint: str) -> None:
        """Raises FlywheelError with the hint if the Python cannot be run."""
        if not (self.python.is_file() and os.access(self.python, os.X_OK)):
            raise FlywheelError(f"`environments.{self.name}.python`: {self.python} is not a program.", hint)

    async def started(self, template: str) -> str:
        """Starts a task in a new process and describes its first screen; raises FlywheelError."""
        host = self.host()
        try:
            await host.revive()
            seen = await first_of(host.sandbox(), self.task(template), 0)
        except TrajectoryFailure as error:
            raise FlywheelError(f"`environments.{self.name}`: {template} does not start: {error.reason}.") from error
        finally:
            await host.close()
        return f"{template} started, {seen.width} x {seen.height} pixels"


class ProcessEnvironment(PythonEnvironment[AnyProcess]):
    """An environment with the processes of its config."""

    @property
    def hosts(self) -> int:
        """Number of processes."""
        return self.config.processes

    @property
    def spares(self) -> int:
        """Number of processes kept warm."""
        return self.config.spares


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
