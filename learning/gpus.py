"""Locks each GPU for one training at a time; the next waits, whichever lake, command or server it is of.

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
"""Locks; they are lifted when this is closed or garbage-collected."""


def take(names: Sequence[str], waiting: Callable[[str], None], folder: Path = FOLDER) -> Held:
    """Locks GPUs by their names, always in the same order, and waits for each that another training holds.

    Args:
        names: names of the GPUs by the driver.
        waiting: called once for each GPU that another training holds, with a message that names its process.
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
