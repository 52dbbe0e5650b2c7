"""Writes a folder whole or not at all: in a hidden folder next to its path, renamed in one step.

A killed process leaves its hidden folder. While it writes, a file in the folder is locked, and the lock ends with its
process, so abandoned folders can be distinguished from those in use.
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
    """Yields a path on the target's own disk, to be made a folder; it becomes the target if the block succeeds.

    Raises:
        OSError: there is no place for it.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix=BEGIN) as folder,
        FileLock(Path(folder) / "new"),
    ):
        (Path(folder) / "new").rename(Path(folder) / LOCK)  # it has this name only once it is locked
        whole = Path(folder) / "whole"
        yield whole
        whole.replace(target)


def swept(target: Path) -> list[Path]:
    """Removes hidden folders of `atomic_folder` next to a target whose process is gone; returns their paths."""
    found = [one for one in target.absolute().parent.glob(f"{BEGIN}*") if not one.is_symlink() and _abandoned(one)]
    for one in found:
        shutil.rmtree(one, ignore_errors=True)
    return found


def _abandoned(folder: Path) -> bool:
    """Checks whether a folder is one of ours that no process writes any more."""
    if not (folder / LOCK).is_file():
        return False
    try:
        with FileLock(folder / LOCK, blocking=False):
            return True
    except (Timeout, OSError):  # in use, or a link
        return False
