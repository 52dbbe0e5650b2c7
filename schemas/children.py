"""Environment of child processes: ours import nothing from the current folder, the user's own commands may.

`python -m` puts the current folder first on the path, so that a `models.py` or a `tasks` folder in it hides our
package of that name. Python's `-P` ends that for one process; this variable reaches the processes that it starts, too,
such as torchrun's ranks.
"""

import os
from collections.abc import Mapping

SAFE_PATH = "PYTHONSAFEPATH"
_SET_HERE = "flywheel"
"""Value that distinguishes our setting from the user's own, which their commands keep."""


def ours(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a process of ours: it imports nothing from the current folder."""
    return {**environ, SAFE_PATH: environ.get(SAFE_PATH) or _SET_HERE}


def theirs(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a user's command, whose scripts import modules of their own folder."""
    return {name: value for name, value in environ.items() if (name, value) != (SAFE_PATH, _SET_HERE)}
