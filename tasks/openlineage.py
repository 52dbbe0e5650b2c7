"""What was made from what, sent to whoever collects lineage, in OpenLineage's form (openlineage.io, spec 2-0-2).

A stage, or a retraining, is a run of a job; the lake's tables, at their versions, and policies are its data sets. An
event that cannot be delivered ends nothing: it is reported once.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from schemas.config.openlineage import OpenLineageConfig
from schemas.table import utc_now
from storage.lake import Lake
from tasks.running.console import err
from tasks.running.run import Run
from tasks.shared.version import code_version

SPEC = "https://openlineage.io/spec"
EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
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
        pins: the versions of the tables that it reads; those that there are when it begins if not given.
        parent: the policy that it reads.

    Yields:
        A list; versions of policies that are added to it are data sets that were made.
    """
    to, made = run.config.openlineage, list[str]()
    if not to.to:
        yield made
        return
    before = run.lake.versions()
    read = Read(before if pins is None else pins, parent)
    send(to, event(run, job, about, "START", read, {}))
    try:
        yield made
    except BaseException as error:
        state = "FAIL" if isinstance(error, Exception) else "ABORT"
        send(to, event(run, job, about, state, read, {}, problem=str(error) or type(error).__name__))
        raise
    changed = {table: at for table, at in run.lake.versions().items() if before.get(table) != at}
    send(to, event(run, job, about, "COMPLETE", read, changed, made))


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
    """Delivers an event; says once where that is not possible."""
    text = json.dumps(sent, sort_keys=True)
    try:
        if to.to.startswith(("http://", "https://")):
            _post(to, text)
        else:
            path = Path(to.to).expanduser()
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
    except Exception as error:
        if to.to not in _SAID:
            _SAID.add(to.to)
            err().print(f"OpenLineage events do not reach {to.to}: {error}", markup=False)


_SAID: set[str] = set()


def _post(to: OpenLineageConfig, text: str) -> None:
    import httpx  # it takes a while, and few ask for it

    key = os.environ.get(to.key_variable)
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    httpx.post(to.to, content=text.encode(), headers=headers, timeout=to.timeout_s).raise_for_status()


def _tables(lake: Lake, versions: Mapping[str, int]) -> list[Event]:
    return [
        {
            "namespace": lake.uri,
            "name": f"tables/{table}",
            "facets": {"version": _facet("1-0-1", "DatasetVersionDatasetFacet", {"datasetVersion": str(version)})},
        }
        for table, version in sorted(versions.items())
    ]


def _policies(lake: Lake, versions: Iterable[str]) -> list[Event]:
    return [{"namespace": lake.uri, "name": f"policies/{version}", "facets": {}} for version in versions]


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
