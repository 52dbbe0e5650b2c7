"""Lock a folder so that one process at a time builds in it. The lock is on a file next to it, and ends with its
process.

The file is never deleted: otherwise one process could hold the deleted file and another a new one of the same name.
"""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from schemas.failure import FlywheelError


@contextlib.contextmanager
def alone(folder: Path, what: str) -> Generator[None]:
    """Keeps other processes from building in a folder.

    Args:
        folder: the folder to build in; its parent exists.
        what: the thing that is built, for the error.

    Raises:
        FlywheelError: another process builds in it; names that process.
        OSError: the lock file cannot be created next to the folder.
    """
    folder = folder.resolve()  # by whichever name it is called
    try:
        opened = (folder.parent / f".{folder.name}.lock").open("a+")
    except PermissionError:  # the folder is writable but its parent is not, so no lock file can be made
        yield
        return
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            holder = f"process {lock.read().strip()}".strip()
            problem = f"{what} is being added to {folder} by another command ({holder})."
            raise FlywheelError(problem, "Wait for it, or end it; then give this command again.") from error
        except OSError:  # no locks on this file system
            pass
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
