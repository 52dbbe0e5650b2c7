"""Run the hybrid environment (UI-TARS-2's GUI-SDK, arXiv 2509.02544): a browser and a shell over one file system."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from pydantic import Field, model_validator

from environments.bubblewrap import bubblewrap
from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.hybrid.bubblewrap import INSTALL, SandboxLimits
from environments.hybrid.sandbox import HybridSandbox
from environments.hybrid.tasks import files, programs, tables, text, web
from environments.hybrid.tasks.task import Template
from environments.hybrid.terminal import TerminalSession
from environments.sandbox import Sandbox
from schemas.config.section import Count, Positive
from schemas.failure import FlywheelError, Probe, TrajectoryFailure
from schemas.tables.task import TaskEntry

STOPS_S = 10.0
"""Seconds that a step has in addition to its command's limit, to stop the command or to try a program."""
FAMILIES = (files.FAMILY, text.FAMILY, tables.FAMILY, programs.FAMILY, web.FAMILY)
TEMPLATES: Mapping[str, Template] = {
    name: template for family in FAMILIES for name, template in family.templates.items()
}
"""All hybrid tasks by name."""


class HybridConfig(ChromiumConfig):
    """A workspace with files, local pages, an editor and an isolated shell (docs/hybrid.md)."""

    width: Annotated[int, Field(ge=320, le=4096)] = 640
    """Width of the screen, in pixels."""
    height: Annotated[int, Field(ge=240, le=4096)] = 480
    """Height of the screen, in pixels."""
    command_s: Positive = 5.0
    """Maximum seconds of a shell command; a longer command is stopped."""
    memory_mib: Annotated[int, Field(ge=64)] = 256
    """Maximum memory in MiB of a shell's processes together. A shell that exceeds it ends its trajectory."""
    disk_mib: Annotated[int, Field(ge=4)] = 32
    """Maximum size in MiB of the files that a shell writes, in memory. `/tmp` and `/dev/shm` have a quarter of it
    each."""
    processes: Annotated[int, Field(ge=8)] = 32
    """Maximum concurrent processes of a shell."""
    cpu_s: Count = 60
    """Maximum processor seconds of a shell's processes together."""

    @model_validator(mode="after")
    def _in_time(self) -> "HybridConfig":
        if self.command_s + STOPS_S > self.step_timeout_s:
            raise ValueError(f"step_timeout_s is {self.step_timeout_s:g}: command_s and {STOPS_S:g} s more must fit")
        return self

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the screen, in pixels."""
        return self.width, self.height

    @property
    def limits(self) -> SandboxLimits:
        """Limits of each shell's sandbox."""
        return SandboxLimits(self.memory_mib, self.disk_mib, processes=self.processes, cpu_s=self.cpu_s)


class HybridEnvironment(ChromiumEnvironment[HybridConfig]):
    """Tasks in which files are found, changed, downloaded and uploaded, and programs repaired."""

    section = HybridConfig
    verifier = "hybrid"
    sandbox_class = HybridSandbox
    origin = "flywheel hybrid 1"

    @property
    def templates(self) -> Mapping[str, Template]:
        """Returns the templates of `environments.hybrid.tasks`; a subclass may have others."""
        return TEMPLATES

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the entries of the templates."""
        return {name: template.entry for name, template in self.templates.items()}

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox with a page and a sandboxed shell."""
        return HybridSandbox(
            browser, self.config, self.config.size, self.templates, self.config.limits, self.config.command_s
        )

    def probes(self) -> Sequence[Probe]:
        """Checks the browser, and that a shell can be isolated, before anything is started."""
        return (Probe("shell isolation", self._isolates), *super().probes())

    def _isolates(self) -> str:
        asked = [bubblewrap(INSTALL), "--version"]
        try:
            version = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        except OSError as error:
            raise FlywheelError(f"bubblewrap cannot be run: {error}.", INSTALL) from error
        with ThreadPoolExecutor(1) as thread:  # the caller may have its own loop
            try:
                thread.submit(asyncio.run, self._tried()).result()
            except TrajectoryFailure as error:
                raise FlywheelError(f"No shell can be isolated here: {error.reason}.", INSTALL) from error
        return f"{version}; a sandboxed shell starts and runs Python"

    async def _tried(self) -> None:
        terminal = await TerminalSession.open(self.config.limits, self.config.command_s)
        try:
            ran = await terminal.run("python3 -I -S -c 'print(6 * 7)'")
        finally:
            await terminal.close()
        if ran.output.strip() != "42":
            raise FlywheelError(
                f"The shell has no Python: {ran.output.strip() or ran.note}.",
                "Install python3 in /usr (`apt install python3`): the programs to repair are run with it.",
            )
