"""Names of policies that no iteration gives: each is claimed before anything is made under it.

A claim is a small file in the lake that one writer alone can make. It says what is to be made, so a name whose owner
died is taken up by whoever is to make the same (and finds its work in progress under that name); it is never used for
anything else. An owner on another machine is taken to be alive.
"""

import hashlib
import json
import os
import re
import socket
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Self

import psutil
from pydantic import BaseModel, ConfigDict

from schemas.failure import UsageError
from storage.lake import Lake

FOLDER = "claims"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
RESERVED = ("champion", "explorer", "run")
"""What commands call a policy that has another name; and the claim on a lake's turn, which lies beside those on names
(`tasks.iteration_lock`). A policy that was named `run` before keeps its name."""


CLOCK_S = 60.0
"""Where only the clock tells when a process began: a step of the clock by less is not taken for another process."""


class Owner(BaseModel):
    """A process, as a file in the lake names it."""

    model_config = ConfigDict(frozen=True)

    machine: str
    process: int
    began: float
    """When that process began, for process ids come again; in seconds since 1970, so it moves with the clock."""
    ticks: int | None = None
    """The same in clock ticks since the machine was started, which no clock moves; None where no /proc tells."""

    @classmethod
    def this(cls, **more: Any) -> Self:
        """This process."""
        own = os.getpid()
        return cls(machine=_machine(), process=own, began=psutil.Process().create_time(), ticks=_ticks(own), **more)

    @property
    def is_here(self) -> bool:
        """Whether its process is, or was, one of this machine."""
        return self.machine == _machine()

    @property
    def abandoned(self) -> bool:
        """Whether its owner is known to be gone."""
        if not self.is_here:
            return False
        try:
            process = psutil.Process(self.process)
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
            if self.ticks is not None and (ticks := _ticks(self.process)) is not None:
                return ticks != self.ticks
            return abs(process.create_time() - self.began) > CLOCK_S
        except psutil.NoSuchProcess:
            return True

    def is_of(self, other: "Owner") -> bool:
        """Whether both are the same process."""
        same_id = (self.machine, self.process) == (other.machine, other.process)
        return same_id and (None in (self.ticks, other.ticks) or self.ticks == other.ticks)


class Claim(Owner):
    """What a claim's file holds."""

    recipe: str
    """A digest of what is to be made."""


def claim(lake: Lake, stem: str, recipe: Mapping[str, Any], name: str | None = None) -> str:
    """The first free name of the form `STEM-0000`, or that of an abandoned policy of the same recipe; now ours.

    Args:
        lake: where it will be registered.
        stem: the name without its number.
        recipe: what is to be made; JSON values.
        name: take this very name instead.

    Raises:
        UsageError: `name` is none, or is another policy's.
    """
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
    if name is None:
        names = (f"{stem}-{number:04d}" for number in count())
        return next(one for one in names if _claimed(lake, one, digest))
    if not NAME.fullmatch(name) or name in RESERVED:
        taken = f", and none of {', '.join(RESERVED)}" if name in RESERVED else ""
        raise UsageError(f"`{name}` is no name of a policy.", f"Use letters, digits, dots and dashes{taken}.")
    if not _claimed(lake, name, digest):
        raise UsageError(f"The name `{name}` is taken in {lake.uri}.", "Choose another one.")
    return name


def _claimed(lake: Lake, name: str, recipe: str) -> bool:
    store, folder = lake.blobs.store, f"{FOLDER}/{name}"
    there = sorted(name for name in store.sizes(folder) if name.endswith(".json"))
    status = lake.read("policies", ["status"], {"policy_version": name})["status"].to_pylist()
    if there or status:
        if not there or status not in ([], ["candidate"]):
            return False
        try:
            last = Claim.model_validate_json(store.get(there[-1]))
        except FileNotFoundError:  # listed, and not there: another process's, or a stale listing
            return False
        if last.recipe != recipe or not last.abandoned:
            return False
    return store.put_once(f"{folder}/{len(there):04d}.json", Claim.this(recipe=recipe).model_dump_json().encode())


def _ticks(process: int) -> int | None:
    """When a process began, in clock ticks since the machine was started; field 22 of proc(5)'s `stat`."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _machine() -> str:
    """This machine since it was started, and the container: where a process id means one process."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()
