"""The lock on a lake's iterations: one run at a time works on them, so that two do not run the same one."""

from collections.abc import Iterator
from contextlib import contextmanager

from storage.lake import Lake
from tasks.shared import lock
from tasks.shared.lock import LockOwner

FOLDER = "claims/run"


@contextmanager
def iteration_lock(lake: Lake) -> Iterator[None]:
    """Hold the lock on the lake's iterations.

    Raises:
        UsageError: another run holds it; names its machine and process.
    """
    with lock.locked(lake, FOLDER):
        yield


def require_free(lake: Lake) -> None:
    """Raise UsageError, naming the owner, if a run holds the lock."""
    lock.require_free(lake, FOLDER)


def iteration_lock_owner(lake: Lake) -> LockOwner | None:
    """Return the run that holds the lock, or None."""
    return lock.lock_owner(lake, FOLDER)
