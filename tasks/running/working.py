"""What reads a lake for long is seen there while it does, so that nothing is taken away below it.

Many may work at once. Each holds a file of its own; that of a process that is gone counts nothing.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from uuid import uuid4

from schemas.failure import LakeError, UsageError
from storage.lake import Lake
from tasks.shared.holding import holders, holding

FOLDER = "control/work"


@contextmanager
def working(lake: Lake, what: str) -> Iterator[None]:
    """Says in the lake that this process is at something, within.

    Args:
        lake: the lake.
        what: one word, such as retrain.
    """
    folder = f"{FOLDER}/{what}-{uuid4().hex}"
    with ExitStack() as held:
        with suppress(LakeError):  # who only reads a lake that nobody may write to
            held.callback(lake.blobs.store.prune, folder)
            held.enter_context(holding(lake, folder))
        yield


def require_idle(lake: Lake) -> None:
    """Raises UsageError where a process works on the lake, naming it and what it is at."""
    store = lake.blobs.store
    for name, one in holders(store, FOLDER).items():
        if one is not None and not one.over:
            what = name.split("/")[-2].rpartition("-")[0]
            raise UsageError(
                f"Process {one.process} of {one.host} works on the lake at {lake.uri} ({what}).",
                "Wait for it or end it, then give the same command again.",
            )
        if one is None or one.is_here:  # one of another machine may only be out of reach, and would miss its file
            store.delete(name)
            store.prune(name.rpartition("/")[0])
