"""Send lineage events to an OpenLineage collector (openlineage.io, spec 2-0-2).

Each stage and each retraining is a run of a job. Its data sets are versions of the lake's tables, and policies. Their
names follow OpenLineage's naming of files and objects. A separate thread posts the events, so no run waits for the
collector. A lost event does not end a run; it is reported once.

The tests check these events with openlineage-python. This module does not use its clients, because they wait for a
silent collector at every event and log a traceback each time.
"""

import atexit
import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from schemas.config.operations import OpenLineageConfig
from schemas.table import utc_now
from storage.lake import Lake
from tasks.running.console import err
from tasks.running.run import Run
from tasks.shared.version import code_version

SPEC = "https://openlineage.io/spec"
EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
HTTP = ("http://", "https://")
AGAIN_S = 60.0
"""Seconds without posting after a lost event. Events of this time are lost too."""
LAST_S = 1.0
"""Seconds that a run waits for its last event if a signal ends the run."""
WAITING = 1000
"""Maximum number of queued events."""
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """Inputs of a run."""

    tables: Mapping[str, int]
    """Versions of the tables that the run read."""
    parent: str | None = None
    """Policy that the run started from."""


@contextmanager
def emitted(
    run: Run, job: str, about: str, pins: Mapping[str, int] | None = None, parent: str | None = None
) -> Iterator[list[str]]:
    """Send events at the start and end of the enclosed work; without a collector, do nothing.

    Args:
        run: the run, whose config has the collector's address.
        job: name of the work, such as the name of a stage.
        about: text that distinguishes this run of the job from others, such as `iteration 3`.
        pins: versions of the tables; the current versions if not given. Inputs are the tables that the work has read
            until its end.
        parent: the policy that the work reads.

    Yields:
        A list. Policy versions that the work adds to it are output data sets.
    """
    to, made = run.config.openlineage, list[str]()
    if not to.to:
        yield made
        return
    before = run.lake.versions()
    versions = before if pins is None else pins
    send(to, event(run, job, about, "START", Read({}, parent), {}))

    def read() -> Read:
        return Read({table: version for table, version in versions.items() if table in names}, parent)

    with run.lake.noting() as names:
        try:
            yield made
        except BaseException as error:
            state = "FAIL" if isinstance(error, Exception) else "ABORT"
            send(to, event(run, job, about, state, read(), {}, problem=str(error) or type(error).__name__))
            if state == "ABORT":  # a signal may end the run before its normal end
                flush(to, LAST_S)
            raise
    changed = {table: at for table, at in run.lake.versions().items() if before.get(table) != at}
    send(to, event(run, job, about, "COMPLETE", read(), changed, made))


def event(
    run: Run,
    job: str,
    about: str,
    state: str,
    read: Read,
    written: Mapping[str, int],
    policies: list[str] | None = None,
    problem: str | None = None,
) -> Event:
    """Return one event.

    Args:
        run: the run, with the lake of the tables.
        job: name of the work.
        about: text that distinguishes this run of the job from others.
        state: START, COMPLETE, FAIL or ABORT.
        read: inputs of the work.
        written: versions of the tables that the work changed.
        policies: policy versions that the work made.
        problem: the error that ended the work.
    """
    namespace, name = run.config.openlineage.namespace, run.config.name
    parent = {"run": {"runId": run.run_id}, "job": {"namespace": namespace, "name": name}}
    facets: Event = {"parent": _facet("1-2-0", "ParentRunFacet", parent)}
    if problem is not None:
        error = {"message": problem, "programmingLanguage": "python"}
        facets["errorMessage"] = _facet("1-0-1", "ErrorMessageRunFacet", error)
    kind = {"processingType": "BATCH", "integration": "FLYWHEEL", "jobType": "TASK"}
    return {
        "eventType": state,
        "eventTime": utc_now().isoformat(),
        "producer": _producer(),
        "schemaURL": EVENT,
        "run": {"runId": str(uuid5(NAMESPACE_URL, f"{run.run_id}/{job}/{about}")), "facets": facets},
        "job": {
            "namespace": namespace,
            "name": f"{name}.{job}",
            "facets": {"jobType": _facet("2-0-4", "JobTypeJobFacet", kind)},
        },
        "inputs": [*_tables(run.lake, read.tables), *_policies(run.lake, [read.parent] if read.parent else [])],
        "outputs": [*_tables(run.lake, written), *_policies(run.lake, policies or [])],
    }


def send(to: OpenLineageConfig, sent: Event) -> None:
    """Write an event to the file, or queue it for posting. Report a failure once."""
    text = json.dumps(sent, sort_keys=True)
    if to.to.startswith(HTTP):
        _poster(to).put(text)
        return
    try:
        path = Path(to.to).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError as error:
        _report_lost(to.to, error)


class Poster:
    """Posts events in order, in a daemon thread."""

    def __init__(self, to: OpenLineageConfig) -> None:
        self._to = to
        self._waiting = queue.Queue[str](WAITING)
        self._again = 0.0
        threading.Thread(target=self._work, name="openlineage", daemon=True).start()

    def put(self, text: str) -> None:
        """Queue an event for posting. The event is lost if the queue is full."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full as error:
            _report_lost(self._to.to, error)

    def flush(self, seconds: float) -> bool:
        """Wait up to `seconds` until the queue is empty; return whether it is."""
        with (done := self._waiting.all_tasks_done):
            return done.wait_for(lambda: not self._waiting.unfinished_tasks, seconds)

    def _work(self) -> None:
        while True:
            text = self._waiting.get()
            try:
                if time.monotonic() >= self._again:
                    _post(self._to, text)
            except Exception as error:
                self._again = time.monotonic() + AGAIN_S
                _report_lost(self._to.to, error)
            finally:
                self._waiting.task_done()


def flush(to: OpenLineageConfig, seconds: float) -> bool:
    """Wait up to `seconds` until every event is posted or lost, and return whether the queue is empty."""
    return not to.to.startswith(HTTP) or _poster(to).flush(seconds)


_POSTERS: dict[str, Poster] = {}


def _poster(to: OpenLineageConfig) -> Poster:
    """Return the poster for an address."""
    if (poster := _POSTERS.get(to.to)) is None:
        poster = _POSTERS[to.to] = Poster(to)
        atexit.register(poster.flush, to.timeout_s)
    return poster


_REPORTED: set[str] = set()


def _report_lost(address: str, error: Exception) -> None:
    if address not in _REPORTED:
        _REPORTED.add(address)
        err().print(f"OpenLineage events do not reach {address}: {error or type(error).__name__}", markup=False)


def _post(to: OpenLineageConfig, text: str) -> None:
    import httpx  # the import is slow, and few configs need it

    key = os.environ.get(to.key_variable)
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    httpx.post(to.to, content=text.encode(), headers=headers, timeout=to.timeout_s).raise_for_status()


def _tables(lake: Lake, versions: Mapping[str, int]) -> list[Event]:
    return [
        {
            **_dataset(lake, f"tables/{table}"),
            "facets": {"version": _facet("1-0-1", "DatasetVersionDatasetFacet", {"datasetVersion": str(version)})},
        }
        for table, version in sorted(versions.items())
    ]


def _policies(lake: Lake, versions: Iterable[str]) -> list[Event]:
    return [{**_dataset(lake, f"policies/{version}"), "facets": {}} for version in versions]


def _dataset(lake: Lake, below: str) -> dict[str, str]:
    """Return OpenLineage's namespace and name for data in the lake."""
    where = urlsplit(lake.uri) if "://" in lake.uri else None
    if where is None:
        return {"namespace": "file", "name": f"{lake.uri}/{below}"}
    return {"namespace": f"{where.scheme}://{where.netloc}", "name": f"{where.path}/{below}".lstrip("/")}


def _facet(version: str, kind: str, fields: Mapping[str, Any]) -> Event:
    return {"_producer": _producer(), "_schemaURL": f"{SPEC}/facets/{version}/{kind}.json#/$defs/{kind}", **fields}


def _producer() -> str:
    return f"urn:flywheel:{code_version()}"
