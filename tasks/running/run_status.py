"""Publish the current status of a run for other processes: stage, progress, loss, sandboxes.

Each process has one status. A run writes its status to a file in its lake every few seconds, so the dashboard and
`flywheel status --watch` work from any machine. `flywheel forget` and `flywheel upgrade` delete no files while such a
file shows a live process, because the process may read them. The file of a killed run stays until a later run removes
it.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.process import repeated
from environments.leased import Leased, leased_now
from schemas.failure import LakeError, UsageError
from storage.lake import Lake
from tasks.shared.lease import Owner

FOLDER = "live"
"""Folder among the lake's blobs. Each run has one file in it."""
EVERY_S = 2.0
SILENT_S = 30.0
"""Age in seconds from which a status counts as left by a killed run. The clocks of two machines must differ by less
than this."""
GONE_S = 3600.0
"""Age in seconds above which a run deletes the status file of another run. It is long, because clocks may differ."""
POINTS = 200
"""Maximum number of points of a training curve. A longer curve loses every second point."""


class RunStatus(BaseModel):
    """Status of a run at one moment."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    host: str = Field(default_factory=socket.gethostname)
    process: int = Field(default_factory=os.getpid)
    owner: Owner | None = None
    """Process that wrote the status; None if unknown."""
    heard: float = 0.0
    """Time at which the status was written, in seconds since 1970."""
    run_id: str = ""
    part: int | None = None
    """Part of a shared run; None for the run itself."""
    flow: str = ""
    """Flow of the run: `flywheel`, `retrain`, `evaluate`, ..."""
    iteration: int | None = None
    stage: str = ""
    """Current stage; empty between two stages."""
    since: float = 0.0
    """Start of the stage, in seconds since 1970."""
    label: str = ""
    """Label of the progress bar, if there is one."""
    done: float = 0.0
    total: float | None = None
    message: str = ""
    curve: tuple[tuple[int, Mapping[str, float]], ...] = ()
    """Some steps of the current training, each with its measures by name; `loss` is always one of the measures."""
    steps: int = 0
    """Number of steps of the current training."""
    sandboxes: tuple[Leased, ...] = ()

    @property
    def is_dead(self) -> bool:
        """Whether the process is known to have ended, or has written nothing for `SILENT_S` seconds."""
        return (self.owner is not None and self.owner.gone) or abs(time.time() - self.heard) >= SILENT_S

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the progress bar is complete, at the average pace so far; None if unknown."""
        spent = self.heard - self.since
        if not self.total or self.done <= 0 or spent <= 0:
            return None
        return spent * max(0.0, self.total - self.done) / self.done


class CurrentStatus:
    """Current status of this process; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status = RunStatus()

    def enter(self, run_id: str, iteration: int | None, stage: str) -> None:
        """Record the start of a stage, or of a part of a run outside an iteration."""
        self._set(RunStatus(run_id=run_id, iteration=iteration, stage=stage, since=time.time()))

    def leave(self) -> None:
        """Record the end of the current stage."""
        self._set(RunStatus(run_id=self._status.run_id, iteration=self._status.iteration, since=time.time()))

    def progress(self, label: str, done: float, total: float | None, message: str = "") -> None:
        """Record the state of the progress bar."""
        self._change(label=label, done=done, total=total, message=message)

    def trained(self, step: int, steps: int, measures: Mapping[str, float]) -> None:
        """Record a step of the current training."""
        curve = (*self._status.curve, (step, measures))
        self._change(curve=curve if len(curve) <= POINTS else curve[::2], steps=steps)

    def read(self, leases: bool = True) -> RunStatus:
        """Return the status, with the leased sandboxes if asked, whose memory takes a while to measure."""
        leased = leased_now() if leases else ()
        with self._lock:
            return self._status.model_copy(update={"sandboxes": leased, "heard": time.time()})

    def _set(self, now: RunStatus) -> None:
        with self._lock:
            self._status = now

    def _change(self, **fields: object) -> None:
        with self._lock:
            self._status = self._status.model_copy(update=fields)


CURRENT = CurrentStatus()


@contextmanager
def published(lake: Lake, run_id: str, flow: str, part: int | None = None) -> Iterator[None]:
    """Update the status file of a run while the block runs, then delete the file.

    Args:
        lake: the run's lake.
        run_id: UUID of the run.
        flow: name of the run's flow.
        part: part of a shared run that this process does; None for the run itself.
    """
    store, name = lake.blobs.store, file_of(run_id if part is None else f"{run_id}-{part}")
    fields = {"run_id": run_id, "flow": flow, "part": part, "owner": Owner.this()}
    sweep = cache(partial(_sweep, lake))

    def publish() -> None:
        store.put(name, CURRENT.read().model_copy(update=fields).model_dump_json().encode())

    with contextlib.suppress(LakeError, OSError):  # the lake may be read-only
        publish()
    try:
        with repeated(EVERY_S, lambda: (publish(), sweep()), "status", join_s=EVERY_S):
            yield
    finally:
        with contextlib.suppress(Exception):  # a leftover file shows an ended process
            store.delete(name)


def require_idle(lake: Lake) -> None:
    """Raise UsageError if a process uses the lake. The error names the process and its flow."""
    store = lake.blobs.store
    for name, one in _files(lake).items():
        if one and one.owner and one.owner.left_s(store, name):
            raise UsageError(
                f"Process {one.process} of {one.host} works on the lake at {lake.uri} ({one.flow or 'run'}).",
                "Wait for it or end it, then give the same command again.",
            )
        if one is None or (one.owner and one.owner.is_here):  # a process of another machine may still need its file
            store.delete(name)


def file_of(run_id: str) -> str:
    """Return the name of the status file of a run, among the lake's blobs."""
    return f"{FOLDER}/{run_id}.json"


def _sweep(lake: Lake) -> None:
    """Delete the status files of killed runs."""
    for name, found in _files(lake).items():
        if found is None or abs(time.time() - found.heard) > GONE_S:
            lake.blobs.store.delete(name)


def run_statuses(lake: Lake) -> list[RunStatus]:
    """Return the current status of each live run of a lake, with the sandboxes of its parts on other machines.

    A run inside an iteration comes first; the other runs follow in the order of their `run_id`.
    """
    found = [one for one in _files(lake).values() if one and not one.is_dead]
    parts = sorted((one for one in found if one.part is not None), key=lambda one: one.part or 0)
    leased: dict[str, list[Leased]] = {}
    for part in parts:
        leased.setdefault(part.run_id, []).extend(part.sandboxes)
    runs = [
        one.model_copy(update={"sandboxes": (*one.sandboxes, *leased.get(one.run_id, ()))})
        for one in found
        if one.part is None
    ]
    return sorted(runs, key=lambda one: (one.iteration is None, one.run_id))


def dead_run(lake: Lake, iteration: int) -> RunStatus | None:
    """Return the newest status of a run that died in an iteration; None if no file of such a run is left."""
    found = [one for one in _files(lake).values() if one and one.iteration == iteration and one.is_dead]
    return max((one for one in found if one.part is None), key=lambda one: one.heard, default=None)


def _files(lake: Lake) -> dict[str, RunStatus | None]:
    """Return the status in each status file, by the file's name; None for an unreadable file."""
    found: dict[str, RunStatus | None] = {}
    for name in lake.blobs.store.sizes(FOLDER):
        if name.endswith(".json"):
            with contextlib.suppress(FileNotFoundError, ValidationError):  # the run ended after the listing
                data, found[name] = lake.blobs.store.get(name), None
                found[name] = RunStatus.model_validate_json(data)
    return found
