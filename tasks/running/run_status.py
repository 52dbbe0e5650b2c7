"""What a run is at this moment, for whoever looks from elsewhere: stage, progress, loss, sandboxes.

One process has one such moment. A run writes it to its lake every few seconds, each to a file of its own, so the
dashboard and `flywheel status --watch` see all that happens there from any machine; nothing rests on it. The file of a
run that was killed stays until a later run takes it away; its age gives it away.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from environments.leased import Leased, leased_now
from storage.lake import Lake

FOLDER = "live"
"""Among the lake's blobs: a file for each run."""
EVERY_S = 2.0
SILENT_S = 30.0
"""A moment that was written longer ago is of a run that is gone; clocks of machines may differ by less."""
GONE_S = 3600.0
"""A file that is older is of nobody, whatever the clocks of machines differ by."""
POINTS = 200
"""Of a training's curve; every other one goes when there are more."""


class RunStatus(BaseModel):
    """One moment of a run."""

    model_config = ConfigDict(frozen=True)

    host: str = Field(default_factory=socket.gethostname)
    process: int = Field(default_factory=os.getpid)
    heard: float = 0.0
    """When it was written, in seconds since 1970."""
    run_id: str = ""
    part: int | None = None
    """Of a run that is shared out, which part this is of; None of the run itself."""
    flow: str = ""
    """What the run is of: `flywheel`, `retrain`, `evaluate`, ..."""
    iteration: int | None = None
    stage: str = ""
    """What is under way; empty between two stages."""
    since: float = 0.0
    """When that began, in seconds since 1970."""
    label: str = ""
    """Of the progress bar, where there is one."""
    done: float = 0.0
    total: float | None = None
    message: str = ""
    curve: tuple[tuple[int, Mapping[str, float]], ...] = ()
    """Steps of the training under way, thinned, and what was measured there by name, `loss` always."""
    steps: int = 0
    """How many steps that training has."""
    sandboxes: tuple[Leased, ...] = ()

    @property
    def left_s(self) -> float | None:
        """Seconds that what the bar shows still takes at the pace so far; None while nobody can tell."""
        spent = self.heard - self.since
        if not self.total or self.done <= 0 or spent <= 0:
            return None
        return spent * max(0.0, self.total - self.done) / self.done


class CurrentStatus:
    """The present of this process; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = RunStatus()

    def enter(self, run_id: str, iteration: int | None, stage: str) -> None:
        """A stage begins, or a part of a run that turns no iteration."""
        self._set(RunStatus(run_id=run_id, iteration=iteration, stage=stage, since=time.time()))

    def leave(self) -> None:
        """It has ended."""
        self._set(RunStatus(run_id=self._now.run_id, iteration=self._now.iteration, since=time.time()))

    def progress(self, label: str, done: float, total: float | None, message: str = "") -> None:
        """How far what the bar shows has come."""
        self._change(label=label, done=done, total=total, message=message)

    def trained(self, step: int, steps: int, measures: Mapping[str, float]) -> None:
        """A training has made so many of its steps."""
        curve = (*self._now.curve, (step, measures))
        self._change(curve=curve if len(curve) <= POINTS else curve[::2], steps=steps)

    def read(self) -> RunStatus:
        """All of it, with the sandboxes that are leased."""
        leased = leased_now()
        with self._lock:
            return self._now.model_copy(update={"sandboxes": leased, "heard": time.time()})

    def _set(self, now: RunStatus) -> None:
        with self._lock:
            self._now = now

    def _change(self, **fields: object) -> None:
        with self._lock:
            self._now = self._now.model_copy(update=fields)


CURRENT = CurrentStatus()


@contextmanager
def published(lake: Lake, run_id: str, flow: str, part: int | None = None) -> Iterator[None]:
    """Keeps the lake's file of a run's moment up to date within, and takes it away at the end.

    Args:
        lake: what the run works on.
        run_id: the run's, a UUID.
        flow: what it is of.
        part: of a run that is shared out, which part of it this process does.
    """
    over, name = threading.Event(), file_of(run_id if part is None else f"{run_id}-{part}")
    fields = {"run_id": run_id, "flow": flow, "part": part}
    writer = threading.Thread(target=_publish, args=(lake, name, fields, over), name="now", daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join(timeout=EVERY_S)
        with contextlib.suppress(Exception):  # nothing rests on it
            lake.blobs.store.delete(name)


def file_of(run_id: str) -> str:
    """Where a run's moment is, among the lake's blobs."""
    return f"{FOLDER}/{run_id}.json"


def _publish(lake: Lake, name: str, fields: Mapping[str, object], over: threading.Event) -> None:
    store, swept = lake.blobs.store, False
    while not over.wait(EVERY_S):
        with contextlib.suppress(Exception):  # nothing rests on it
            now = CURRENT.read().model_copy(update=fields)
            store.put(name, now.model_dump_json().encode())
            if not swept:
                _sweep(lake)
                swept = True


def _sweep(lake: Lake) -> None:
    """Takes away what runs that were killed left."""
    for name, found in _files(lake).items():
        if found is None or abs(time.time() - found.heard) > GONE_S:
            lake.blobs.store.delete(name)


def run_statuses(lake: Lake) -> list[RunStatus]:
    """What each run of a lake that was heard of lately is at, with the sandboxes of its parts elsewhere: the one
    that turns its iterations first, then the others in the order in which they began."""
    found = [one for one in _files(lake).values() if one and abs(time.time() - one.heard) < SILENT_S]
    parts = sorted((one for one in found if one.part is not None), key=lambda one: one.part or 0)
    runs = [
        one.model_copy(update={"sandboxes": (*one.sandboxes, *_leased(parts, one.run_id))})
        for one in found
        if one.part is None
    ]
    return sorted(runs, key=lambda one: (one.iteration is None, one.run_id))


def _leased(parts: Iterable[RunStatus], run_id: str) -> Iterator[Leased]:
    for part in parts:
        if part.run_id == run_id:
            yield from part.sandboxes


def _files(lake: Lake) -> dict[str, RunStatus | None]:
    """The files of runs; None for what says nothing."""
    found: dict[str, RunStatus | None] = {}
    for name in lake.blobs.store.sizes(FOLDER):
        if name.endswith(".json"):
            with contextlib.suppress(FileNotFoundError):  # its run has just ended
                found[name] = _read(lake.blobs.store.get(name))
    return found


def _read(data: bytes) -> RunStatus | None:
    try:
        return RunStatus.model_validate_json(data)
    except ValidationError:
        return None
