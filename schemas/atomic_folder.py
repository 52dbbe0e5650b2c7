"""A folder that is there whole or not at all: written beside its place, and moved there in one step.

Whoever is killed on the way leaves a hidden folder. While it is written a file in it is holding, and a lock ends with
its process, so what nobody writes any more is known from what somebody does.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

BEGIN, LOCK = ".export-", "lock"


@contextmanager
def atomic_folder(target: Path) -> Generator[Path]:
    """A path on the target's own disk, to be made a folder, which becomes the target as the block ends well.

    Raises:
        OSError: there is no place for it.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix=BEGIN) as folder,
        (Path(folder) / "new").open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        (Path(folder) / "new").rename(Path(folder) / LOCK)  # it has this name only once it is holding
        whole = Path(folder) / "whole"
        yield whole
        whole.replace(target)


def swept(target: Path) -> list[Path]:
    """Removes what `atomic_folder` left beside a target where its process is gone; returns what that was."""
    found = [one for one in target.absolute().parent.glob(f"{BEGIN}*") if not one.is_symlink() and _abandoned(one)]
    for one in found:
        shutil.rmtree(one, ignore_errors=True)
    return found


def _abandoned(folder: Path) -> bool:
    """Whether it is one of ours that nobody writes any more."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)
