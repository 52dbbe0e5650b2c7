"""Publish a run's current status for other processes: stage, progress, loss, sandboxes.

One process has one such status. A run writes it to its lake every few seconds, each to a file of its own, so the
dashboard and `flywheel status --watch` work from any machine. The file also shows that its process uses the lake, so
that maintenance deletes nothing that it reads. The file of a killed run stays until a later run removes it.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.process import repeated
from environments.leased import Leased, leased_now
from schemas.failure import LakeError, UsageError
from storage.lake import Lake
from tasks.shared.lease import Owner

FOLDER = "live"
"""Folder among the lake's blobs, with a file for each run."""
EVERY_S = 2.0
SILENT_S = 30.0
"""Age in seconds of the status of a run that is gone; clocks of machines may differ by less."""
GONE_S = 3600.0
"""Age in seconds from which a file belongs to no run, however much the clocks of machines differ."""
POINTS = 200
"""Maximum number of points of a training's curve; then every other one is removed."""


class RunStatus(BaseModel):
    """Status of a run at one moment."""

    model_config = ConfigDict(frozen=True)

    host: str = Field(default_factory=socket.gethostname)
    process: int = Field(default_factory=os.getpid)
    owner: Owner | None = None
    """The process; None where it is unknown."""
    heard: float = 0.0
    """Time of writing, in seconds since 1970."""
    run_id: str = ""
    part: int | None = None
    """Part of a shared run; None for the run itself."""
    flow: str = ""
    """The run's flow: `flywheel`, `retrain`, `evaluate`, ..."""
    iteration: int | None = None
    stage: str = ""
    """Stage under way; empty between two stages."""
    since: float = 0.0
    """Start of the stage, in seconds since 1970."""
    label: str = ""
    """Label of the progress bar, if there is one."""
    done: float = 0.0
    total: float | None = None
    message: str = ""
    curve: tuple[tuple[int, Mapping[str, float]], ...] = ()
    """Steps of the training under way, thinned, with the measures by name, `loss` always."""
    steps: int = 0
    """Number of steps of that training."""
    sandboxes: tuple[Leased, ...] = ()

    @property
    def left_s(self) -> float | None:
        """Seconds left of the bar's work at the pace so far; None while they are unknown."""
        spent = self.heard - self.since
        if not self.total or self.done <= 0 or spent <= 0:
            return None
        return spent * max(0.0, self.total - self.done) / self.done


class CurrentStatus:
    """Current status of this process; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = RunStatus()

    def enter(self, run_id: str, iteration: int | None, stage: str) -> None:
        """Record the begin of a stage, or of a part of a run outside an iteration."""
        self._set(RunStatus(run_id=run_id, iteration=iteration, stage=stage, since=time.time()))

    def leave(self) -> None:
        """Record its end."""
        self._set(RunStatus(run_id=self._now.run_id, iteration=self._now.iteration, since=time.time()))

    def progress(self, label: str, done: float, total: float | None, message: str = "") -> None:
        """Record the bar's progress."""
        self._change(label=label, done=done, total=total, message=message)

    def trained(self, step: int, steps: int, measures: Mapping[str, float]) -> None:
        """Record a training's step."""
        curve = (*self._now.curve, (step, measures))
        self._change(curve=curve if len(curve) <= POINTS else curve[::2], steps=steps)

    def read(self) -> RunStatus:
        """Return the status, with the leased sandboxes."""
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
    """Keep the lake's file of a run's status up to date within the block, and remove it at the end.

    Args:
        lake: the run's lake.
        run_id: the run's, a UUID.
        flow: name of its flow.
        part: this process's part of a shared run.
    """
    store, name = lake.blobs.store, file_of(run_id if part is None else f"{run_id}-{part}")
    fields = {"run_id": run_id, "flow": flow, "part": part, "owner": Owner.this()}
    sweep = cache(partial(_sweep, lake))

    def publish() -> None:
        store.put(name, CURRENT.read().model_copy(update=fields).model_dump_json().encode())

    with contextlib.suppress(LakeError, OSError):  # a lake that cannot be written to
        publish()
    try:
        with repeated(EVERY_S, lambda: (publish(), sweep()), "status", join_s=EVERY_S):
            yield
    finally:
        with contextlib.suppress(Exception):  # maintenance sees that the process is gone
            store.delete(name)


def require_idle(lake: Lake) -> None:
    """Raise UsageError, naming the process and its work, if one uses the lake."""
    store = lake.blobs.store
    for name, one in _files(lake).items():
        if one and one.owner and one.owner.left_s(store, name):
            raise UsageError(
                f"Process {one.process} of {one.host} works on the lake at {lake.uri} ({one.flow or 'run'}).",
                "Wait for it or end it, then give the same command again.",
            )
        if one is None or (one.owner and one.owner.is_here):  # another machine may be unreachable and need its file
            store.delete(name)


def file_of(run_id: str) -> str:
    """Return the name of a run's status among the lake's blobs."""
    return f"{FOLDER}/{run_id}.json"


def _sweep(lake: Lake) -> None:
    """Remove the files of killed runs."""
    for name, found in _files(lake).items():
        if found is None or abs(time.time() - found.heard) > GONE_S:
            lake.blobs.store.delete(name)


def run_statuses(lake: Lake) -> list[RunStatus]:
    """Return the current status of each live run of a lake, with the sandboxes of its parts on other machines.

    The run of the iterations comes first, then the others in the order of their begin.
    """
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
    """Return the files of runs; None for an unreadable one."""
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
