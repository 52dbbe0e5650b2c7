"""List the desktop's tasks, and the programs that they and the desktop itself need."""

from collections.abc import Mapping

from environments.desktop.tasks import calculator, editor, files, pictures, terminal, windows
from environments.desktop.tasks.task import DesktopTask

TASKS: Mapping[str, DesktopTask] = {
    **editor.TASKS,
    **terminal.TASKS,
    **files.TASKS,
    **calculator.TASKS,
    **pictures.TASKS,
    **windows.TASKS,
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
