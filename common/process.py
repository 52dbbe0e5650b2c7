"""This process: its work folder, its garbage collector, and the environment of its children.

`python -m` puts the current folder first on the path, so that a `models.py` or a `tasks` folder in it hides our
package of that name. Python's `-P` ends that for one process; `SAFE_PATH` reaches the processes that it starts, too,
such as torchrun's ranks. So our children import nothing from the current folder; a user's own commands may.
"""

import gc
import os
from collections.abc import Mapping
from pathlib import Path

SAFE_PATH = "PYTHONSAFEPATH"
_SET_HERE = "flywheel"
"""Value that distinguishes our setting from the user's own, which their commands keep."""
YOUNG_OBJECTS = 50_000
"""New objects after which Python looks for cycles among them: some ten megabytes. With its own 700 a process that
imports Prefect, Great Expectations or torch spends a quarter of its start on that."""


def home() -> Path:
    """Returns the work folder, whose files can be deleted: `FLYWHEEL_HOME`, else `.flywheel` in the current folder."""
    return Path(os.environ.get("FLYWHEEL_HOME", ".flywheel")).absolute()


def ours(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a process of ours: it imports nothing from the current folder."""
    return {**environ, SAFE_PATH: environ.get(SAFE_PATH) or _SET_HERE}


def theirs(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a user's command, whose scripts import modules of their own folder."""
    return {name: value for name, value in environ.items() if (name, value) != (SAFE_PATH, _SET_HERE)}


def collect_garbage_seldom() -> None:
    """Raises the number of new objects between two garbage collections."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
