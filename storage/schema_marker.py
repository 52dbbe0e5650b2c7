"""Read and write the schema marker: a small file with the lake's id and schema version.

The marker prevents that a wrong `lake.uri` fills another folder, and that a lake of another version fails in the middle
of a run.
"""

import json
import uuid
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.failure import LakeError
from schemas.table import SCHEMA_VERSION, utc_now
from storage.objects import ObjectStore, no_conditional_writes

NAME = "flywheel.json"


class SchemaMarker(BaseModel):
    """Content of `flywheel.json`."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    format: Literal["flywheel-lake"] = "flywheel-lake"
    schema_version: int
    lake_id: str
    created_at: str


def read_marker(store: ObjectStore, uri: str, oldest: int = SCHEMA_VERSION) -> SchemaMarker | None:
    """Return the schema marker at an address, or None if there is none.

    Args:
        store: object store at the address.
        uri: the address, for messages.
        oldest: the oldest accepted schema version.

    Raises:
        LakeError: the marker is invalid, or has a schema version that is not accepted.
    """
    try:
        mark = SchemaMarker.model_validate(json.loads(store.get(NAME)))
    except FileNotFoundError:
        return None
    except (ValueError, ValidationError) as error:
        raise LakeError(f"{uri}/{NAME} is not the mark of a lake.", "Set `lake.uri` to another place.") from error
    problem = f"The lake at {uri} has schema version {mark.schema_version}; this flywheel reads {SCHEMA_VERSION}."
    if mark.schema_version > SCHEMA_VERSION:
        raise LakeError(problem, "Use a newer flywheel, or set `lake.uri` to a new place.")
    if mark.schema_version < oldest:
        raise LakeError(problem, "`flywheel upgrade` brings it up to date in place.")
    return mark


def renew_marker(store: ObjectStore, mark: SchemaMarker) -> SchemaMarker:
    """Replace the schema marker of an upgraded lake, and return it."""
    renewed = mark.model_copy(update={"schema_version": SCHEMA_VERSION})
    store.put(NAME, renewed.model_dump_json(indent=2).encode())
    return renewed


def make_marker(store: ObjectStore, uri: str) -> SchemaMarker:
    """Write the schema marker of a new lake to an empty address, and return the marker.

    If several processes do this at once, all of them get the same marker.

    Raises:
        LakeError: the address has other data, or its server ignores the condition of a conditional write.
    """
    others = [name for name in store.sizes() if name != NAME]
    if others and not store.exists(NAME):
        problem = f"{uri} is not empty and has no {NAME}: it is not a lake (it holds, for example, {others[0]})."
        raise LakeError(problem, "Set `lake.uri` to an empty place.")
    mark = SchemaMarker(schema_version=SCHEMA_VERSION, lake_id=uuid.uuid4().hex[:12], created_at=utc_now().isoformat())
    data = mark.model_dump_json(indent=2).encode()
    if store.put_or_get(NAME, data) == data and store.put_once(NAME, data + b"\n"):
        raise no_conditional_writes(uri)
    found = read_marker(store, uri)
    if found is None:
        raise LakeError(f"{uri}/{NAME} was written and cannot be read.", "Check the storage at `lake.uri`.")
    return found
