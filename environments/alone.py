"""One process at a time builds in a folder: a file beside it is locked, and a lock ends with its process.

The file stays when all is done: who waits at a file that is deleted and who makes it anew would both hold it.
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
        folder: where; what holds it is there already.
        what: what is built, for the error.

    Raises:
        FlywheelError: another process builds in it; names that.
        OSError: no file can be made beside it.
    """
    folder = folder.resolve()  # by whichever name it is called
    try:
        opened = (folder.parent / f".{folder.name}.lock").open("a+")
    except PermissionError:  # the folder is ours, what it lies in is not: nothing can be locked there
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
