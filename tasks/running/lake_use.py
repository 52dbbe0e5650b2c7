"""Register processes that use a lake for long, so that maintenance deletes nothing that they read.

Many processes may use a lake at once. Each holds a lock of its own.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from uuid import uuid4

from schemas.failure import LakeError, UsageError
from storage.lake import Lake
from tasks.shared.lock import lock_owners, locked

FOLDER = "control/work"


@contextmanager
def in_use(lake: Lake, what: str) -> Iterator[None]:
    """Register this process as a user of the lake.

    Args:
        lake: the lake.
        what: one word for the work, such as retrain.
    """
    folder = f"{FOLDER}/{what}-{uuid4().hex}"
    with ExitStack() as held:
        with suppress(LakeError):  # a lake that cannot be written to
            held.callback(lake.blobs.store.prune, folder)
            held.enter_context(locked(lake, folder))
        yield


def require_idle(lake: Lake) -> None:
    """Raise UsageError, naming the process and its work, if one uses the lake."""
    store = lake.blobs.store
    for name, one in lock_owners(store, FOLDER).items():
        if one is not None and not one.over:
            what = name.split("/")[-2].rpartition("-")[0]
            raise UsageError(
                f"Process {one.process} of {one.host} works on the lake at {lake.uri} ({what}).",
                "Wait for it or end it, then give the same command again.",
            )
        if one is None or one.is_here:  # an owner on another machine may be unreachable and need its file
            store.delete(name)
            store.prune(name.rpartition("/")[0])
