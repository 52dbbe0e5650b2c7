"""Claim names for policies that no iteration makes, before anything is made under them.

A claim is a small file in the lake that one writer alone can make. It has a digest of the recipe, so a process with the
same recipe takes over the name of a dead owner (and finds its work in progress under that name); the name is never used
for anything else. An owner on another machine counts as alive.
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
"""Words that commands use for policies, and the claim on a lake's iterations, which lies next to those on names
(`tasks.iteration_lock`). A policy that was named `run` before keeps its name."""


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

    @classmethod
    def this(cls, **more: Any) -> Self:
        """Return the owner for this process."""
        own = os.getpid()
        return cls(machine=_machine(), process=own, began=psutil.Process().create_time(), ticks=_ticks(own), **more)

    @property
    def is_here(self) -> bool:
        """Whether its process is, or was, on this machine."""
        return self.machine == _machine()

    @property
    def abandoned(self) -> bool:
        """Whether its process is known to be gone."""
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
    """Content of a claim's file."""

    recipe: str
    """Digest of the recipe."""


def claim(lake: Lake, stem: str, recipe: Mapping[str, Any], name: str | None = None) -> str:
    """Claim the first free name of the form `STEM-0000`, or that of an abandoned policy of the same recipe.

    Args:
        lake: the lake of the policy.
        stem: the name without its number.
        recipe: the recipe of the policy; JSON values.
        name: claim this name instead.

    Raises:
        UsageError: `name` is not valid, or is another policy's.
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
        except FileNotFoundError:  # listed but missing: another process's, or a stale listing
            return False
        if last.recipe != recipe or not last.abandoned:
            return False
    return store.put_once(f"{folder}/{len(there):04d}.json", Claim.this(recipe=recipe).model_dump_json().encode())


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
