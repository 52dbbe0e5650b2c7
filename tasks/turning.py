"""One run at a time turns a lake's iterations: two would turn the same one twice.

Whoever turns holds a file in the lake, which it writes anew while it lives. The file of a process that is gone from
this machine counts nothing, so the same command goes on at once after a kill; one of another machine, which cannot be
asked for its processes, counts until it has been silent for `SILENT_S`. A run that was silent for so long itself, on a
machine that slept, finds that another took its turn, and ends.
"""

import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Event, Thread

from pydantic import ValidationError

from schemas.failure import UsageError
from storage.lake import Lake
from storage.objects import ObjectStore
from tasks.running.console import err
from tasks.running.now import published
from tasks.shared.claims import Owner

FOLDER = "claims/run"
BEAT_S = 20.0
"""From one sign of life to the next."""
SILENT_S = 300.0
"""What is not heard of for so long is gone; clocks of machines may differ by less."""


class Turn(Owner):
    """What the file of a run holds."""

    heard: float
    """When it last gave a sign of life, in seconds since 1970."""
    host: str
    installation: str = ""
    """Which of the machines of that name, where that is known; unlike `machine` it outlasts a restart."""

    @property
    def over(self) -> bool:
        """Whether nobody turns the lake under this file any more."""
        return self.abandoned or self.restarted or (not self.is_here and time.time() - self.heard > SILENT_S)

    @property
    def restarted(self) -> bool:
        """Whether its machine is this one, before it was started anew."""
        own = _this()
        boots = [one.machine.partition("/") for one in (self, own)]
        known = all(separator for _, separator, _ in boots) and boots[0][0] != boots[1][0]
        return known and (self.host, self.installation) == (own.host, own.installation)


@contextmanager
def turning(lake: Lake) -> Iterator[None]:
    """Keeps others from turning the lake's iterations within.

    Raises:
        UsageError: another run does; names its machine and process.
    """
    store, name = lake.blobs.store, _held(lake)
    done = Event()
    beats = Thread(target=_beat, args=(lake, name, done), name="run-beats", daemon=True)
    beats.start()
    try:
        with published(lake):
            yield
    finally:
        done.set()
        beats.join()
        store.delete(name)


def require_free(lake: Lake) -> None:
    """Raises UsageError where a run turns the lake's iterations, naming it."""
    _refuse(lake, _turns(lake.blobs.store))


def turn_of(lake: Lake) -> Turn | None:
    """The run that turns the lake's iterations now, or None."""
    return next((turn for turn in _turns(lake.blobs.store).values() if turn is not None and not turn.over), None)


def _held(lake: Lake) -> str:
    """The name of a file that is now ours, the one file of a run that lives."""
    store = lake.blobs.store
    there = _turns(store)
    _refuse(lake, there)
    name = f"{FOLDER}/{1 + max((_number(one) for one in there), default=-1):06d}.json"
    if not store.put_once(name, _now()):
        _refuse(lake, _turns(store))
        raise UsageError(f"Another run of the lake at {lake.uri} began or ended just now.", "Start this one again.")
    others = {one: turn for one, turn in _turns(store).items() if one != name}
    try:
        _refuse(lake, others)  # whoever looked before our file was there
    except UsageError:
        store.delete(name)
        raise
    for other in others:
        store.delete(other)
    return name


def _turns(store: ObjectStore) -> dict[str, Turn | None]:
    """The files of runs, in order; None for one that went while it was read, and for what says nothing."""
    found: dict[str, Turn | None] = {}
    for name in sorted(one for one in store.sizes(FOLDER) if one.endswith(".json")):
        try:
            found[name] = Turn.model_validate_json(store.get(name))
        except (FileNotFoundError, ValidationError):
            found[name] = None
    return found


def _refuse(lake: Lake, turns: dict[str, Turn | None]) -> None:
    for turn in turns.values():
        if turn is not None and not turn.over:
            until = datetime.fromtimestamp(turn.heard + SILENT_S).astimezone()
            counts = "" if turn.is_here else f"If it is gone already, it counts until {until:%H:%M:%S}. "
            raise UsageError(
                f"The lake at {lake.uri} is in use by process {turn.process} of {turn.host}.",
                f"Wait for it or end it; the same command then goes on. {counts}Or set `lake.uri` to another lake.",
            )


def _beat(lake: Lake, name: str, done: Event) -> None:
    """Gives signs of life until `done`; ends the run, as SIGTERM does, when another has taken its turn."""
    store = lake.blobs.store
    newer: dict[str, float] = {}
    while not done.wait(BEAT_S):
        try:
            turns, before = _turns(store), newer
            newer = {one: turn.heard for one, turn in turns.items() if turn and _number(one) > _number(name)}
            # one that is about to be refused has a file, too, for a moment, but gives no second sign of life
            if name not in turns or any(before.get(one, heard) != heard for one, heard in newer.items()):
                break
            store.put(name, _now())
        except Exception:
            continue
    else:
        return
    text = f"Another run took over the lake at {lake.uri} while this one was not heard of; this one ends."
    err().print(text, markup=False, soft_wrap=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _now() -> bytes:
    return _this().model_dump_json().encode()


def _this() -> Turn:
    try:
        installation = hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:16]
    except OSError:
        installation = ""
    return Turn.this(heard=time.time(), host=socket.gethostname(), installation=installation)


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(".json"))
