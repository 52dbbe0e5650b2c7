"""Take and hold leases: locks in the lake that a process owns and renews by heartbeats.

A lease has a folder of numbered files, and its newest file names the owner. A process takes the lease by creating the
file with the next number. Only one process can create a file. Only older files are deleted, so a late deletion cannot
remove the file of a newer owner. An empty file is a released lease.

If the owner ran on this machine and ended, its lease is free at once. A killed command can therefore be repeated at
once. If the owner ran on another machine, its lease is free after `EXPIRY_S` without a heartbeat, by the store's clock.
An owner that slept for longer finds its lease taken, and ends.

A claim keeps the name of a policy that is made outside of iterations, before work on it starts. It is a small file in
the lake, which only one process can create. It has a digest of the policy's recipe. If the owner of a claim is dead, a
process with the same recipe takes over the name and its unfinished work. The name is never used for another recipe. An
owner on another machine counts as alive.
"""

import hashlib
import json
import os
import random
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from itertools import count
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
from tasks.shared.policies import policies

ITERATIONS = "claims/run"
"""Folder of the lease on the iterations of a lake. Only one run at a time can work on them."""
HEARTBEAT_S = 20.0
"""Seconds between two heartbeats."""
EXPIRY_S = 300.0
"""Seconds without a heartbeat after which the lease of a process on another machine is free."""
WAIT_S = 600.0
"""Maximum seconds that a process waits for a lease. Leases that processes wait for are held only briefly."""
POLL_S = 0.2
"""Mean seconds between two polls of a waiting process."""
CLOCK_S = 60.0
"""Maximum difference, in seconds, between two readings of the start of one process. The readings differ after a step of
the clock."""


class Owner(BaseModel):
    """Identity of a process, in a file of the lake."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    machine: str
    process: int
    began: float
    """Start of the process, in seconds since 1970. It distinguishes processes with the same id."""
    ticks: int | None = None
    """Start of the process, in clock ticks since the machine started. Steps of the clock do not change it. None without
    /proc."""
    host: str = ""
    installation: str = ""
    """Id of the machine that stays the same across restarts, unlike `machine`; empty if unknown."""

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
        """Whether the process runs or ran on this machine since the machine's last restart."""
        return self.machine == _machine()

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended."""
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
        """Whether the process ran on this machine before the machine's last restart."""
        own = Owner.this()
        boots = [one.machine.partition("/") for one in (self, own)]
        known = all(separator for _, separator, _ in boots) and boots[0][0] != boots[1][0]
        return known and (self.host, self.installation) == (own.host, own.installation)

    def is_of(self, other: "Owner") -> bool:
        """Whether both owners are the same process."""
        same_id = (self.machine, self.process) == (other.machine, other.process)
        return same_id and (None in (self.ticks, other.ticks) or self.ticks == other.ticks)

    def left_s(self, store: ObjectStore, name: str) -> float:
        """Return the seconds until the owner's file expires without a further heartbeat."""
        if self.gone or self.is_here:
            return 0.0 if self.gone else inf
        try:
            return max(0.0, EXPIRY_S - store.age_s(name))
        except FileNotFoundError:
            return 0.0
        except LakeError:  # the store's clock needs a write, and the lake is read-only
            return inf


class LeaseOwner(Owner):
    """Content of the file of a lease."""

    attempt: str = Field(default_factory=lambda: uuid4().hex)
    """Distinguishes two threads of one process."""


@contextmanager
def lease(lake: Lake, folder: str, wait: bool = False) -> Iterator[None]:
    """Hold a lease while the block runs. A process that loses the lease gets SIGTERM.

    Args:
        lake: the lake.
        folder: folder of the lease among the lake's blobs.
        wait: wait up to `WAIT_S` seconds until the lease is free.

    Raises:
        UsageError: another process holds the lease. The message has its machine and process.
    """
    store, content = lake.blobs.store, LeaseOwner.this().model_dump_json().encode()
    until = time.monotonic() + (WAIT_S if wait else 0.0)
    while not (name := _take(lake, folder, content)):
        if time.monotonic() >= until:
            require_free(lake, folder)
        time.sleep(random.uniform(POLL_S / 2, POLL_S * 2))  # random, so that two processes do not poll in step
    try:
        with repeated(HEARTBEAT_S, lambda: _heartbeat(lake, name, content), f"{folder}-heartbeats"):
            yield
    finally:
        store.put(name, b"")


def require_free(lake: Lake, folder: str = ITERATIONS) -> None:
    """Raise UsageError if a process holds the lease. The message has the owner."""
    newest, owner = _newest(lake.blobs.store, folder)
    left_s = owner.left_s(lake.blobs.store, newest) if owner else 0.0
    if owner and left_s:
        until = "" if left_s == inf else f"{datetime.now().astimezone() + timedelta(seconds=left_s):%H:%M:%S}"
        counts = f"If this process has ended, its lease lasts until {until}. " if until else ""
        raise UsageError(
            f"The lake at {lake.uri} is in use by process {owner.process} of {owner.host}.",
            f"Wait for this process or end it; the same command then continues. {counts}"
            "Or set `lake.uri` to another lake.",
        )


def lease_owner(lake: Lake, folder: str = ITERATIONS) -> LeaseOwner | None:
    """Return the owner of a lease, or None if it is free."""
    newest, owner = _newest(lake.blobs.store, folder)
    return owner if owner and owner.left_s(lake.blobs.store, newest) else None


def iteration_lock(lake: Lake) -> AbstractContextManager[None]:
    """Hold the lease on the lake's iterations, so that two runs do not make the same iteration.

    Raises:
        UsageError: another run holds the lease. The message has its machine and process.
    """
    return lease(lake, ITERATIONS)


def _take(lake: Lake, folder: str, content: bytes) -> str:
    """Take the lease and return the name of its file; empty if another process has the lease."""
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
    """Renew the file, or end this process with SIGTERM if another process took the lease."""
    store = lake.blobs.store
    if _names(store, name.rpartition("/")[0])[-1:] == [name]:
        return store.put(name, content)
    from tasks.running.console import err

    text = f"Another run took over the lake at {lake.uri} while this one sent no heartbeat; this one ends."
    err().print(text, markup=False, soft_wrap=True)
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit()


def _newest(store: ObjectStore, folder: str) -> tuple[str, LeaseOwner | None]:
    """Return the newest file and its owner. The owner is None if the lease is released or the file is unreadable."""
    newest = next(reversed(_names(store, folder)), "")
    with suppress(FileNotFoundError, ValidationError):
        return newest, LeaseOwner.model_validate_json(store.get(newest)) if newest else None
    return newest, None


def _names(store: ObjectStore, folder: str) -> list[str]:
    """Return the names of a lease's files, the newest last."""
    return sorted((one for one in store.sizes(folder) if one.endswith(".json")), key=lambda one: (_number(one), one))


def _number(name: str) -> int:
    """Return the number in a file's name. Earlier releases added a suffix to the number."""
    return int(name.rpartition("/")[2].removesuffix(".json").partition("-")[0])


def _ticks(process: int) -> int | None:
    """Return the start of a process in clock ticks since the machine was started; field 22 of proc(5)'s `stat`."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _machine() -> str:
    """Return an id of the scope in which process ids are unique: this start of the machine, and the container."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


FOLDER = "claims"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
RESERVED = ("champion", "explorer", "run")
"""Names that policies must not have: words of commands, and `run`, the folder of the lease on iterations
(`tasks.shared.lease`). An existing policy named `run` keeps its name."""


class Claim(Owner):
    """Content of the file of a claim."""

    recipe: str
    """Digest of the recipe."""


def claim(lake: Lake, stem: str, recipe: Mapping[str, Any], name: str | None = None) -> str:
    """Claim the first free name of the form `STEM-0000`, or the name of an abandoned policy with the same recipe.

    Args:
        lake: the lake of the policy.
        stem: the name without its number.
        recipe: recipe of the policy, as JSON values.
        name: claim this name instead.

    Raises:
        UsageError: `name` is invalid, or another policy has this name.
    """
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
    if name is None:
        names = (f"{stem}-{number:04d}" for number in count())
        return next(one for one in names if _claimed(lake, one, digest))
    if not NAME.fullmatch(name) or name in RESERVED:
        taken = f", and none of {', '.join(RESERVED)}" if name in RESERVED else ""
        raise UsageError(f"`{name}` is not the name of a policy.", f"Use letters, digits, dots and dashes{taken}.")
    if not _claimed(lake, name, digest):
        raise UsageError(f"The name `{name}` is taken in {lake.uri}.", "Choose another one.")
    return name


def _claimed(lake: Lake, name: str, recipe: str) -> bool:
    store, folder = lake.blobs.store, f"{FOLDER}/{name}"
    there = sorted(name for name in store.sizes(folder) if name.endswith(".json"))
    row = policies(lake).get(name)
    if there or row:
        if not there or (row and row.status != "candidate"):
            return False
        try:
            last = Claim.model_validate_json(store.get(there[-1]))
        except FileNotFoundError:  # another process deleted the file, or the listing is stale
            return False
        if last.recipe != recipe or not last.gone:
            return False
    return store.put_once(f"{folder}/{len(there):04d}.json", Claim.this(recipe=recipe).model_dump_json().encode())
