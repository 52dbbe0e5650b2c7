"""A GPU is one training's at a time: who comes second waits, whichever lake, command or server it is of.

Each GPU of this machine has a file that its training holds a lock on, which the kernel lifts when that process is gone.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

FOLDER = Path(tempfile.gettempdir()) / f"flywheel-gpus-{os.getuid()}"
Held = list[TextIO]
"""The locks; they are lifted when this is closed or goes."""


def take(names: Sequence[str], waiting: Callable[[str], None], folder: Path = FOLDER) -> Held:
    """Takes GPUs by their names, in an order that is everybody's, and waits for each that another training has.

    Args:
        names: what the driver calls them.
        waiting: is called once with whom this one waits.
        folder: of the files.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [_take(folder / name, waiting) for name in sorted(names)]


def _take(file: Path, waiting: Callable[[str], None]) -> TextIO:
    lock = file.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        waiting(f"GPU {file.name} is another training's (process {owner}); this one waits for it.")
        fcntl.flock(lock, fcntl.LOCK_EX)
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
