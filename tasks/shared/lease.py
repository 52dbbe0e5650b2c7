"""Leases: files in the lake, each of which names its owner, a process that renews it by heartbeats.

A process takes a lease by making the file with the next number in the lease's folder, which one process alone can do.
Only the newest file counts, and it stays: so no deletion, however late, touches a successor's file. An empty file is a
released lease.

The lease of a process that ended on this machine is free at once, so the same command resumes right after a kill. That
of another machine, whose processes cannot be listed from here, is free after `EXPIRY_S` without a heartbeat, by the
store's own clock. An owner whose machine slept for that long finds the lease taken, and ends.
"""

import hashlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.process import repeated
from schemas.failure import LakeError, UsageError
from storage.lake import Lake
from storage.objects import ObjectStore

ITERATIONS = "claims/run"
"""Lease on the iterations of a lake: one run at a time works on them."""
HEARTBEAT_S = 20.0
"""Seconds between two heartbeats."""
EXPIRY_S = 300.0
"""Seconds without a heartbeat after which the lease of another machine is free."""
WAIT_S = 600.0
"""Seconds that a process waits for a lease at most; a lease that others wait for is held for a short time."""
POLL_S = 0.2
"""Mean seconds between two polls of a waiting process."""
CLOCK_S = 60.0
"""Seconds by which a clock step may change the start of a process, where only the clock has it."""


class Owner(BaseModel):
    """A process, as a file in the lake names it."""

    model_config = ConfigDict(frozen=True)

    machine: str
    process: int
    began: float
    """Start of the process, since process ids are reused; in seconds since 1970, so it moves with the clock."""
    ticks: int | None = None
    """The same in clock ticks since the machine was started, which no clock moves; None without /proc."""
    host: str = ""
    installation: str = ""
    """Identifies the machine across restarts, unlike `machine`; empty where unknown."""

    @classmethod
    def this(cls, **more: Any) -> Self:
        """Return the owner for this process."""
        own, host, installation = os.getpid(), socket.gethostname(), ""
        with suppress(OSError):
            installation = hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:16]
        about = {"machine": _machine(), "process": own, "ticks": _ticks(own), "host": host} | more
        return cls(began=psutil.Process().create_time(), installation=installation, **about)

    @property
    def is_here(self) -> bool:
        """Whether its process is, or was, on this machine since its last restart."""
        return self.machine == _machine()

    @property
    def gone(self) -> bool:
        """Whether its process is known to have ended."""
        if not self.is_here:
            return self._restarted
        try:
            process = psutil.Process(self.process)
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
            if self.ticks is not None and (ticks := _ticks(self.process)) is not None:
                return ticks != self.ticks
            return abs(process.create_time() - self.began) > CLOCK_S
        except psutil.NoSuchProcess:
            return True

    @property
    def _restarted(self) -> bool:
        """Whether it ran on this machine before the last restart."""
        own = Owner.this()
        boots = [one.machine.partition("/") for one in (self, own)]
        known = all(separator for _, separator, _ in boots) and boots[0][0] != boots[1][0]
        return known and (self.host, self.installation) == (own.host, own.installation)

    def is_of(self, other: "Owner") -> bool:
        """Whether both are the same process."""
        same_id = (self.machine, self.process) == (other.machine, other.process)
        return same_id and (None in (self.ticks, other.ticks) or self.ticks == other.ticks)

    def left_s(self, store: ObjectStore, name: str) -> float:
        """Return the seconds for which the file that names this owner counts without a further heartbeat."""
        if self.gone or self.is_here:
            return 0.0 if self.gone else inf
        try:
            return max(0.0, EXPIRY_S - store.age_s(name))
        except FileNotFoundError:
            return 0.0
        except LakeError:  # a lake that cannot be written to has no clock
            return inf


class LeaseOwner(Owner):
    """Content of a lease's file."""

    attempt: str = Field(default_factory=lambda: uuid4().hex)
    """Distinguishes two threads of one process."""


@contextmanager
def lease(lake: Lake, folder: str, wait: bool = False) -> Iterator[None]:
    """Hold a lease; a process that loses it gets SIGTERM.

    Args:
        lake: the lake.
        folder: the lease's folder among the lake's blobs.
        wait: wait up to `WAIT_S` seconds until the lease is free.

    Raises:
        UsageError: another process holds the lease; names its machine and process.
    """
    store, content = lake.blobs.store, LeaseOwner.this().model_dump_json().encode()
    until = time.monotonic() + (WAIT_S if wait else 0.0)
    while not (name := _taken(lake, folder, content)):
        if time.monotonic() >= until:
            require_free(lake, folder)
        time.sleep(random.uniform(POLL_S / 2, POLL_S * 2))  # two that came at once do not meet again
    try:
        with repeated(HEARTBEAT_S, lambda: _heartbeat(lake, name, content), f"{folder}-heartbeats"):
            yield
    finally:
        store.put(name, b"")


def require_free(lake: Lake, folder: str = ITERATIONS) -> None:
    """Raise UsageError, naming the owner, if a process holds the lease."""
    newest, owner = _newest(lake.blobs.store, folder)
    left_s = owner.left_s(lake.blobs.store, newest) if owner else 0.0
    if owner and left_s:
        until = "" if left_s == inf else f"{datetime.now().astimezone() + timedelta(seconds=left_s):%H:%M:%S}"
        counts = f"If it is gone already, it counts until {until}. " if until else ""
        raise UsageError(
            f"The lake at {lake.uri} is in use by process {owner.process} of {owner.host}.",
            f"Wait for it or end it; the same command then goes on. {counts}Or set `lake.uri` to another lake.",
        )


def lease_owner(lake: Lake, folder: str = ITERATIONS) -> LeaseOwner | None:
    """Return the owner of a lease, or None if it is free."""
    newest, owner = _newest(lake.blobs.store, folder)
    return owner if owner and owner.left_s(lake.blobs.store, newest) else None


@contextmanager
def iteration_lock(lake: Lake) -> Iterator[None]:
    """Hold the lease on the lake's iterations, so that two runs do not make the same one.

    Raises:
        UsageError: another run holds it; names its machine and process.
    """
    with lease(lake, ITERATIONS):
        yield


def _taken(lake: Lake, folder: str, content: bytes) -> str:
    """Take the lease and return the name of its file; empty if another process has it."""
    store = lake.blobs.store
    there = _names(store, folder)
    if lease_owner(lake, folder):
        return ""
    name = f"{folder}/{_number(there[-1]) + 1 if there else 0:015d}.json"
    if not store.put_once(name, content) or (now := _names(store, folder))[-1:] != [name]:
        return ""
    for old in now[:-1]:
        store.delete(old)
    return name


def _heartbeat(lake: Lake, name: str, content: bytes) -> None:
    """Renew the file, or end this process with SIGTERM if another one took the lease."""
    store = lake.blobs.store
    if _names(store, name.rpartition("/")[0])[-1:] == [name]:
        return store.put(name, content)
    from tasks.running.console import err

    text = f"Another run took over the lake at {lake.uri} while this one sent no heartbeat; this one ends."
    err().print(text, markup=False, soft_wrap=True)
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit()


def _newest(store: ObjectStore, folder: str) -> tuple[str, LeaseOwner | None]:
    """Return the newest file and its owner; None for a released lease, and for an unreadable file."""
    newest = next(reversed(_names(store, folder)), "")
    with suppress(FileNotFoundError, ValidationError):
        return newest, LeaseOwner.model_validate_json(store.get(newest)) if newest else None
    return newest, None


def _names(store: ObjectStore, folder: str) -> list[str]:
    """Return a lease's files, the newest last."""
    return sorted((one for one in store.sizes(folder) if one.endswith(".json")), key=lambda one: (_number(one), one))


def _number(name: str) -> int:
    """Return the number of a file; names of earlier releases have more after it."""
    return int(name.rpartition("/")[2].removesuffix(".json").partition("-")[0])


def _ticks(process: int) -> int | None:
    """Return the start of a process in clock ticks since the machine was started; field 22 of proc(5)'s `stat`."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _machine() -> str:
    """Return an id of this machine since its start, and of the container: the range of unique process ids."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()
