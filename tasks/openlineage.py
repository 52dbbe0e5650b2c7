"""What was made from what, sent to whoever collects lineage, in OpenLineage's form (openlineage.io, spec 2-0-2).

A stage, or a retraining, is a run of a job; the lake's tables, at their versions, and policies are its data sets, named
as OpenLineage names files and objects. What is posted is posted by a thread of its own, so that no run waits for a
collector; an event that cannot be delivered ends nothing: that is reported once.
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
from uuid import NAMESPACE_URL, UUID, uuid5

from schemas.config.openlineage import OpenLineageConfig
from schemas.table import utc_now
from storage.lake import Lake
from tasks.running.console import err
from tasks.running.run import Run
from tasks.shared.version import code_version

SPEC = "https://openlineage.io/spec"
EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
HTTP = ("http://", "https://")
AGAIN_S = 60.0
"""How long nothing is posted after an event was lost: what comes meanwhile is lost, too."""
LAST_S = 1.0
"""How long a run that is told to end waits for its last event."""
WAITING = 1000
"""Events that may wait to be posted."""
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """What a run has read."""

    tables: Mapping[str, int]
    """Their versions."""
    parent: str | None = None
    """The policy that was gone on from."""


@contextmanager
def emitted(
    run: Run, job: str, about: str, pins: Mapping[str, int] | None = None, parent: str | None = None
) -> Iterator[list[str]]:
    """Sends the begin and the end of what is within; does nothing where nobody listens.

    Args:
        run: its config says where to.
        job: what is done, such as a stage's name.
        about: tells this one from others of the job in the same run, such as `iteration 3`.
        pins: the versions of the tables that it reads; those that there are when it begins if not given. Its inputs
            are those of them that it has read by its end.
        parent: the policy that it reads.

    Yields:
        A list; versions of policies that are added to it are data sets that were made.
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
            if state == "ABORT":  # what is told to end may not come to its ordinary end
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
    """One event.

    Args:
        run: the run, and the lake whose tables are meant.
        job: what is done.
        about: tells this one from others of the job in the same run.
        state: START, COMPLETE, FAIL or ABORT.
        read: its inputs.
        written: versions of the tables that it changed.
        policies: versions that it made.
        problem: what ended it.
    """
    namespace, name = run.config.openlineage.namespace, run.config.name
    facets: Event = {}
    if _is_uuid(run.run_id):
        parent = {"run": {"runId": run.run_id}, "job": {"namespace": namespace, "name": name}}
        facets["parent"] = _facet("1-2-0", "ParentRunFacet", parent)
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
    """Writes an event to its file, or leaves it to be posted; says once where that is not possible."""
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
        _say_lost(to.to, error)


class Poster:
    """Posts events in order, in a thread of its own, which ends with the process."""

    def __init__(self, to: OpenLineageConfig) -> None:
        self._to = to
        self._waiting = queue.Queue[str](WAITING)
        self._again = 0.0
        threading.Thread(target=self._work, name="openlineage", daemon=True).start()

    def put(self, text: str) -> None:
        """Leaves an event to be posted; it is lost where too many wait already."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full as error:
            _say_lost(self._to.to, error)

    def flush(self, seconds: float) -> bool:
        """Waits until nothing waits any more, at most so long; whether that came."""
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
                _say_lost(self._to.to, error)
            finally:
                self._waiting.task_done()


def flush(to: OpenLineageConfig, seconds: float) -> bool:
    """Waits until every event is posted or lost, at most so long; whether that came."""
    return not to.to.startswith(HTTP) or _poster(to).flush(seconds)


_POSTERS: dict[str, Poster] = {}


def _poster(to: OpenLineageConfig) -> Poster:
    """The one of an address."""
    if (poster := _POSTERS.get(to.to)) is None:
        poster = _POSTERS[to.to] = Poster(to)
        atexit.register(poster.flush, to.timeout_s)
    return poster


_SAID: set[str] = set()


def _say_lost(address: str, error: Exception) -> None:
    if address not in _SAID:
        _SAID.add(address)
        err().print(f"OpenLineage events do not reach {address}: {error or type(error).__name__}", markup=False)


def _post(to: OpenLineageConfig, text: str) -> None:
    import httpx  # it takes a while, and few ask for it

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
    """Namespace and name of what lies in the lake, by OpenLineage's naming of S3 objects and of local files."""
    where = urlsplit(lake.uri) if "://" in lake.uri else None
    if where is None:
        return {"namespace": "file", "name": f"{lake.uri}/{below}"}
    return {"namespace": f"{where.scheme}://{where.netloc}", "name": f"{where.path}/{below}".lstrip("/")}


def _facet(version: str, kind: str, fields: Mapping[str, Any]) -> Event:
    return {"_producer": _producer(), "_schemaURL": f"{SPEC}/facets/{version}/{kind}.json#/$defs/{kind}", **fields}


def _producer() -> str:
    return f"urn:flywheel:{code_version()}"


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
