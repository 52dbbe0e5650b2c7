"""Writes a folder atomically: files go to a hidden folder next to the target, which is then renamed in one step.

A killed process leaves its hidden folder. A writing process locks a file in its hidden folder, and the lock ends with
the process. An abandoned folder therefore has no locked file.
"""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

BEGIN, LOCK = ".export-", "lock"


@contextmanager
def atomic_folder(target: Path) -> Generator[Path]:
    """Yields a path on the target's disk. The block makes a folder at this path, which becomes the target if the block
    succeeds.

    Raises:
        OSError: the hidden folder cannot be made.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix=BEGIN) as folder,
        FileLock(Path(folder) / "new"),
    ):
        (Path(folder) / "new").rename(Path(folder) / LOCK)  # renamed only after the file is locked
        whole = Path(folder) / "whole"
        yield whole
        whole.replace(target)


def swept(target: Path) -> list[Path]:
    """Removes abandoned hidden folders of `atomic_folder` next to a target, and returns their paths."""
    found = [one for one in target.absolute().parent.glob(f"{BEGIN}*") if not one.is_symlink() and _abandoned(one)]
    for one in found:
        shutil.rmtree(one, ignore_errors=True)
    return found


def _abandoned(folder: Path) -> bool:
    """Checks whether a folder is a hidden folder of `atomic_folder` that no process uses."""
    if not (folder / LOCK).is_file():
        return False
    try:
        with FileLock(folder / LOCK, blocking=False):
            return True
    except (Timeout, OSError):  # in use, or a link
        return False
