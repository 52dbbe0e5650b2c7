"""Something of a lake that one process at a time may have, such as the turn of its iterations, or deciding who reigns.

Whoever has it holds a file in the lake, which it writes anew while it lives. The file of a process that is gone from
this machine counts nothing, so the same command goes on at once after a kill; one of another machine, which cannot be
asked for its processes, counts until it has been silent for `SILENT_S`. A process that was silent for so long itself,
on a machine that slept, finds that another took its place, and ends.

No two files ever have the same name, so a late or repeated write or deletion of one owner never reaches another's file.
A name begins with the time, so that of two owners the later one is known. A process first asks, by a file that says so.
Of those that ask at once the one of the lowest name gets the lock: all others withdraw, and it waits until they have,
for one of them may have looked before its file was there and hold the lock already.
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

BEAT_S = 20.0
"""From one sign of life to the next."""
SILENT_S = 300.0
"""What is not heard of for so long is gone; clocks of machines may differ by less."""
PATIENCE_S = 600.0
"""Whoever waits for another waits no longer: what is held while others wait is held for moments."""
POLL_S = 0.2
"""About how often whoever waits looks."""
ASKING_S = 30.0
"""How long the process of the lowest name waits for others that ask to withdraw; they need a few calls of the store."""


class Holder(Owner):
    """What the file of a holder says."""

    heard: float
    """When it last gave a sign of life, in seconds since 1970."""
    host: str
    installation: str = ""
    """Which of the machines of that name, where that is known; unlike `machine` it outlasts a restart."""
    asks: bool = False
    """Whether it only asks for the lock. Files of earlier releases, which have a number for a name, never ask."""

    @property
    def over(self) -> bool:
        """Whether nobody holds anything under this file any more."""
        return self.abandoned or self.restarted or (not self.is_here and time.time() - self.heard > SILENT_S)

    @property
    def restarted(self) -> bool:
        """Whether its machine is this one, before it was started anew."""
        own = _this()
        boots = [one.machine.partition("/") for one in (self, own)]
        known = all(separator for _, separator, _ in boots) and boots[0][0] != boots[1][0]
        return known and (self.host, self.installation) == (own.host, own.installation)


@contextmanager
def holding(lake: Lake, folder: str, wait: bool = False) -> Iterator[None]:
    """Keeps others from holding the same within.

    Args:
        lake: whose.
        folder: what is held: where its files are, among the lake's blobs.
        wait: wait until it is free.

    Raises:
        UsageError: another process holds it, and goes on to; names its machine and process.
    """
    store, name = lake.blobs.store, _awaited(lake, folder) if wait else _held(lake, folder)
    done = Event()
    beats = Thread(target=_beat, args=(lake, folder, name, done), name=f"{folder}-beats", daemon=True)
    beats.start()
    try:
        yield
    finally:
        done.set()
        beats.join()
        store.delete(name)


def require_free(lake: Lake, folder: str) -> None:
    """Raises UsageError where a process holds it, naming that."""
    _refuse(lake, holders(lake.blobs.store, folder))


def holder(lake: Lake, folder: str) -> Holder | None:
    """Who holds it now, or None."""
    there = _alive(holders(lake.blobs.store, folder)).values()
    return next((one for one in there if not one.asks), None)


def _awaited(lake: Lake, folder: str) -> str:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return _held(lake, folder)
        except UsageError:
            if time.monotonic() > until:
                raise
        time.sleep(random.uniform(POLL_S / 2, POLL_S * 2))  # two that came at once do not meet again


def _held(lake: Lake, folder: str) -> str:
    """The name of a file that is now ours, the one file of a process that lives."""
    store = lake.blobs.store
    there = holders(store, folder)
    _refuse(lake, there)
    number = max([int(time.time() * 1000), *(_order(one)[0] + 1 for one in there)])
    name = f"{folder}/{number:015d}-{uuid4().hex}.json"
    store.put(name, _now(asks=True))
    try:
        others = _withdrawn(lake, folder, name)
        store.put(name, _now())
    except BaseException:
        store.delete(name)
        raise
    for other in others:
        store.delete(other)
    return name


def _withdrawn(lake: Lake, folder: str, name: str) -> list[str]:
    """Wait until all others that asked at the same time have withdrawn; return the files of processes that are gone.

    Raises:
        UsageError: another process holds it, or asked under a lower name, or does not withdraw.
    """
    until = time.monotonic() + ASKING_S
    while True:
        others = holders(lake.blobs.store, folder)
        if others.pop(name, None) is None:  # taken for one that is gone, after a sleep
            raise UsageError(f"The lake at {lake.uri} changed hands just now.", "Start the same command again.")
        alive = _alive(others)
        late = time.monotonic() > until
        _refuse(lake, {one: it for one, it in alive.items() if late or not it.asks or _order(one) < _order(name)})
        if not alive:
            return list(others)
        time.sleep(random.uniform(POLL_S / 2, POLL_S))


def holders(store: ObjectStore, folder: str) -> dict[str, Holder | None]:
    """The files of holders, in order; None for one that went while it was read, and for what says nothing."""
    found: dict[str, Holder | None] = {}
    for name in sorted(one for one in store.sizes(folder) if one.endswith(".json")):
        try:
            found[name] = Holder.model_validate_json(store.get(name))
        except (FileNotFoundError, ValidationError):
            found[name] = None
    return found


def _alive(there: Mapping[str, Holder | None]) -> dict[str, Holder]:
    return {name: one for name, one in there.items() if one is not None and not one.over}


def _refuse(lake: Lake, there: Mapping[str, Holder | None]) -> None:
    for one in _alive(there).values():
        until = datetime.fromtimestamp(one.heard + SILENT_S).astimezone()
        counts = "" if one.is_here else f"If it is gone already, it counts until {until:%H:%M:%S}. "
        raise UsageError(
            f"The lake at {lake.uri} is in use by process {one.process} of {one.host}.",
            f"Wait for it or end it; the same command then goes on. {counts}Or set `lake.uri` to another lake.",
        )


def _beat(lake: Lake, folder: str, name: str, done: Event) -> None:
    """Gives signs of life until `done`; ends the process, as SIGTERM does, when another has taken its place."""
    store = lake.blobs.store
    while not done.wait(BEAT_S):
        try:
            there = holders(store, folder)
            own = there.get(name)
            later = (one for one, other in there.items() if other and not other.asks and _order(one) > _order(name))
            if own is None or not own.is_of(_this()) or any(later):
                break
            store.put(name, _now())
        except Exception:
            continue
    else:
        return
    text = f"Another run took over the lake at {lake.uri} while this one was not heard of; this one ends."
    err().print(text, markup=False, soft_wrap=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _now(asks: bool = False) -> bytes:
    return _this().model_copy(update={"asks": asks}).model_dump_json().encode()


def _this() -> Holder:
    try:
        installation = hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:16]
    except OSError:
        installation = ""
    return Holder.this(heard=time.time(), host=socket.gethostname(), installation=installation)


def _order(name: str) -> tuple[int, str]:
    """The place of a file among all others: by its number, then by its name."""
    return int(name.rpartition("/")[2].removesuffix(".json").partition("-")[0]), name
