"""A lock in the lake, held by one process, kept alive by a heartbeat.

The owner holds a file in the lake and rewrites it while it lives. The lock of a process that ended on this machine is
free at once, so the same command resumes right after a kill. The lock of another machine, whose processes cannot be
listed from here, expires after `EXPIRY_S` without a heartbeat. An owner whose machine slept for that long finds the
lock taken, and ends.

File names are unique, so a late or repeated write or deletion of one owner never touches another's file. A name begins
with the time, which orders two owners. A process first writes a request. Of several requests the lowest name gets the
lock: the others withdraw, and it waits for that, because one of them may have read the folder before its request was
there and hold the lock already.
"""

import hashlib
import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

from pydantic import ValidationError

from schemas.failure import UsageError
from storage.lake import Lake
from storage.objects import ObjectStore
from tasks.running.console import err
from tasks.shared.claims import Owner

HEARTBEAT_S = 20.0
"""Seconds between two heartbeats."""
EXPIRY_S = 300.0
"""Seconds without a heartbeat after which the lock of another machine is free; clocks may differ by less."""
WAIT_S = 600.0
"""Seconds that a process waits for a lock at most; a lock that others wait for is held for a short time."""
POLL_S = 0.2
"""Mean seconds between two polls of a waiting process."""
WITHDRAWAL_S = 30.0
"""Seconds that the lowest request waits for the others to withdraw, which takes a few calls of the store."""


class LockOwner(Owner):
    """The contents of an owner's file."""

    heard: float
    """Time of the last heartbeat, in seconds since 1970."""
    host: str
    installation: str = ""
    """Identifies the machine across restarts, unlike `machine`; empty where unknown."""
    asks: bool = False
    """Whether this is a request. Files of earlier releases, named by a number, are none."""

    @property
    def over(self) -> bool:
        """Whether the owner has ended or its lock has expired."""
        return self.abandoned or self.restarted or (not self.is_here and time.time() - self.heard > EXPIRY_S)

    @property
    def restarted(self) -> bool:
        """Whether the owner ran on this machine before its last restart."""
        own = _this()
        boots = [one.machine.partition("/") for one in (self, own)]
        known = all(separator for _, separator, _ in boots) and boots[0][0] != boots[1][0]
        return known and (self.host, self.installation) == (own.host, own.installation)


@contextmanager
def locked(lake: Lake, folder: str, wait: bool = False) -> Iterator[None]:
    """Hold a lock.

    Args:
        lake: the lake.
        folder: the lock's folder among the lake's blobs.
        wait: wait up to `WAIT_S` seconds until the lock is free.

    Raises:
        UsageError: another process holds the lock; names its machine and process.
    """
    store, name = lake.blobs.store, _wait_for_lock(lake, folder) if wait else _take_lock(lake, folder)
    done = Event()
    heartbeats = Thread(
        target=_send_heartbeats, args=(lake, folder, name, done), name=f"{folder}-heartbeats", daemon=True
    )
    heartbeats.start()
    try:
        yield
    finally:
        done.set()
        heartbeats.join()
        store.delete(name)


def require_free(lake: Lake, folder: str) -> None:
    """Raise UsageError, naming the owner, if a process holds the lock."""
    _refuse(lake, lock_owners(lake.blobs.store, folder))


def lock_owner(lake: Lake, folder: str) -> LockOwner | None:
    """Return the owner of a lock, or None if it is free."""
    there = _alive(lock_owners(lake.blobs.store, folder)).values()
    return next((one for one in there if not one.asks), None)


def _wait_for_lock(lake: Lake, folder: str) -> str:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return _take_lock(lake, folder)
        except UsageError:
            if time.monotonic() > until:
                raise
        time.sleep(random.uniform(POLL_S / 2, POLL_S * 2))  # two that came at once do not meet again


def _take_lock(lake: Lake, folder: str) -> str:
    """Take the lock; return the name of our file, the only one of a living process."""
    store = lake.blobs.store
    there = lock_owners(store, folder)
    _refuse(lake, there)
    number = max([int(time.time() * 1000), *(_order(one)[0] + 1 for one in there)])
    name = f"{folder}/{number:015d}-{uuid4().hex}.json"
    store.put(name, _contents(asks=True))
    try:
        others = _wait_for_withdrawals(lake, folder, name)
        store.put(name, _contents())
    except BaseException:
        store.delete(name)
        raise
    for other in others:
        store.delete(other)
    return name


def _wait_for_withdrawals(lake: Lake, folder: str, name: str) -> list[str]:
    """Wait until all other requests are withdrawn; return the files of owners that ended.

    Raises:
        UsageError: another process holds the lock, has a lower request, or does not withdraw.
    """
    until = time.monotonic() + WITHDRAWAL_S
    while True:
        others = lock_owners(lake.blobs.store, folder)
        if others.pop(name, None) is None:  # removed as expired while this machine slept
            raise UsageError(f"Another process took over the lake at {lake.uri}.", "Start the same command again.")
        alive = _alive(others)
        late = time.monotonic() > until
        _refuse(lake, {one: it for one, it in alive.items() if late or not it.asks or _order(one) < _order(name)})
        if not alive:
            return list(others)
        time.sleep(random.uniform(POLL_S / 2, POLL_S))


def lock_owners(store: ObjectStore, folder: str) -> dict[str, LockOwner | None]:
    """Read the files of all owners, in order; None for one that was deleted meanwhile or cannot be read."""
    found: dict[str, LockOwner | None] = {}
    for name in sorted(one for one in store.sizes(folder) if one.endswith(".json")):
        try:
            found[name] = LockOwner.model_validate_json(store.get(name))
        except (FileNotFoundError, ValidationError):
            found[name] = None
    return found


def _alive(there: Mapping[str, LockOwner | None]) -> dict[str, LockOwner]:
    return {name: one for name, one in there.items() if one is not None and not one.over}


def _refuse(lake: Lake, there: Mapping[str, LockOwner | None]) -> None:
    for one in _alive(there).values():
        until = datetime.fromtimestamp(one.heard + EXPIRY_S).astimezone()
        counts = "" if one.is_here else f"If it is gone already, it counts until {until:%H:%M:%S}. "
        raise UsageError(
            f"The lake at {lake.uri} is in use by process {one.process} of {one.host}.",
            f"Wait for it or end it; the same command then goes on. {counts}Or set `lake.uri` to another lake.",
        )


def _send_heartbeats(lake: Lake, folder: str, name: str, done: Event) -> None:
    """Send heartbeats until `done`; end the process with SIGTERM if another one took the lock."""
    store = lake.blobs.store
    while not done.wait(HEARTBEAT_S):
        try:
            there = lock_owners(store, folder)
            own = there.get(name)
            later = (one for one, other in there.items() if other and not other.asks and _order(one) > _order(name))
            if own is None or not own.is_of(_this()) or any(later):
                break
            store.put(name, _contents())
        except Exception:
            continue
    else:
        return
    text = f"Another run took over the lake at {lake.uri} while this one sent no heartbeat; this one ends."
    err().print(text, markup=False, soft_wrap=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _contents(asks: bool = False) -> bytes:
    return _this().model_copy(update={"asks": asks}).model_dump_json().encode()


def _this() -> LockOwner:
    try:
        installation = hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:16]
    except OSError:
        installation = ""
    return LockOwner.this(heard=time.time(), host=socket.gethostname(), installation=installation)


def _order(name: str) -> tuple[int, str]:
    """The sort key of a file: its number, then its name."""
    return int(name.rpartition("/")[2].removesuffix(".json").partition("-")[0]), name
