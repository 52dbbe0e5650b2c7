"""Run a desktop as an environment: real programs on a real X server, with real input events."""

import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import Field

from environments.desktop.boxed import Isolation
from environments.desktop.isolation import require_walls
from environments.desktop.sandbox import DesktopSandbox, begin
from environments.desktop.tasks import calculator, editor, files, pictures, terminal, windows
from environments.desktop.tasks.task import DesktopTask
from environments.environment import Environment
from environments.host import Host, NoHost, start_once
from schemas.config.section import Count
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, Probe
from schemas.tables.task import TaskEntry

Side = Annotated[int, Field(ge=320, le=4096)]
TASKS: Mapping[str, DesktopTask] = {
    name: task
    for module in (editor, terminal, files, calculator, pictures, windows)
    for name, task in module.PROGRAM.tasks.items()
}
"""Tasks by template."""
PACKAGES: Mapping[str, str] = {
    "Xvfb": "xvfb",
    "openbox": "openbox",
    "xterm": "xterm",
    "mousepad": "mousepad",
    "pcmanfm": "pcmanfm",
    "galculator": "galculator",
    "gpicview": "gpicview",
}
"""Debian's package for each program."""
FONT = ("/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf", "fonts-dejavu-core")
"""The programs' font, so that desktops look alike everywhere, and its package."""
EXTRA = "pip install 'flywheel[desktop]'"


class DesktopConfig(EnvironmentConfig):
    """A desktop with a terminal, an editor, a file manager and the like (docs/desktop.md)."""

    desktops: Count = 2
    """Concurrent trajectories, each on its own desktop; a desktop takes 100 to 270 MB, depending on its open
    programs."""
    width: Side = 1024
    """Width of the screen, in pixels."""
    height: Side = 768
    """Height of the screen, in pixels."""
    isolation: Isolation = "namespaces"
    """`namespaces`: a desktop sees no file, process or network of this machine; needs bubblewrap. `none`: the policy's
    terminal can see and change everything that you can."""


class DesktopEnvironment(Environment[DesktopConfig]):
    """Tasks in real programs."""

    section = DesktopConfig
    verifier = "desktop"
    sandbox_class = DesktopSandbox
    origin = "flywheel desktop 1"
    lists_elements = False

    @property
    def templates(self) -> Mapping[str, DesktopTask]:
        """Returns the templates of `environments.desktop.tasks`; a subclass may have others."""
        return TASKS

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the entries of the templates."""
        return {name: template.entry for name, template in self.templates.items()}

    @property
    def sandboxes(self) -> int:
        """Number of desktops."""
        return self.config.desktops

    def host(self) -> Host:
        """Returns a host without a process, since each lease starts its own desktop; raises FlywheelError if a program
        is missing."""
        require_programs()
        if self.config.isolation == "namespaces":
            require_walls()
        return NoHost(lambda: DesktopSandbox(self.config, self.templates))

    def probes(self) -> Sequence[Probe]:
        """Checks that the programs are installed and namespaces can be made; for `doctor`, that a desktop starts."""
        walls = () if self.config.isolation == "none" else (Probe("desktop namespaces", require_walls),)
        return (
            Probe("desktop programs", require_programs),
            *walls,
            Probe("desktop starts", self._start, required=False),
        )

    def _start(self) -> str:
        return start_once(lambda: begin(self.config), "Run Xvfb by hand to see its output.")


def missing_packages() -> list[str]:
    """Lists Debian's packages that the desktop and its tasks need but that are not installed."""
    found = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    return found if Path(FONT[0]).exists() else [*found, FONT[1]]


def require_programs() -> str:
    """Checks that all programs are installed; raises FlywheelError naming the missing packages."""
    if missing := missing_packages():
        raise FlywheelError(
            f"The desktop has no {', '.join(missing)}.",
            f"`apt install {' '.join(missing)}` installs them.",
        )
    if absent := [name for name in ("Xlib", "cv2") if find_spec(name) is None]:
        raise FlywheelError(f"The desktop has no Python package {' and '.join(absent)}.", f"`{EXTRA}` installs it.")
    return f"{len(PACKAGES)} programs are installed"
