"""Rewrite the Delta log of a table after copies replaced files of earlier versions.

Readers take the size, number of rows and bounds of a file from the log. They could not read a changed file under its
old name. Each copy therefore has a new name, and the log is rewritten to name the copy.

The log and the files cannot change in one step, and every version must stay readable if the process is killed. The
log's files are therefore replaced one by one, newest first. If an entry adds a new name, the later entries then already
remove this name. Entries that remove old names stay, for processes that opened a version before the change.
"""

import io
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.objects import ObjectStore

LOG = "_delta_log"
HINT = f"{LOG}/_last_checkpoint"


@dataclass(frozen=True, slots=True)
class Copy:
    """A file that replaces another file in the same folder."""

    name: str
    """Path of the file, below the table."""
    size: int
    """Size in bytes."""
    rows: int
    nulls: Mapping[str, int]
    bounds: Mapping[str, tuple[Any, Any]]
    """Minimum and maximum of each column of text or whole numbers."""

    @classmethod
    def of(cls, name: str, size: int, rows: pa.Table) -> "Copy":
        """Return the description of a file with these rows."""
        nulls = {column: rows[column].null_count for column in rows.column_names}
        bounds: dict[str, tuple[Any, Any]] = {}
        for field in rows.schema:
            if pa.types.is_integer(field.type) or field.type in (pa.string(), pa.large_string()):
                found: dict[str, Any] = pc.call_function("min_max", [rows[field.name]]).as_py()
                if found["min"] is not None:
                    bounds[field.name] = found["min"], found["max"]
        return cls(name, size, rows.num_rows, nulls, bounds)

    def path(self, before: str) -> str:
        """Return the path for the log, given the log's path of the replaced file."""
        folder, slash, _ = before.rpartition("/")
        return folder + slash + self.name.rpartition("/")[2]

    def stats(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return statistics for the same columns as those of the replaced file."""
        bounded = [column for column in before.get("minValues", {}) if column in self.bounds]
        return {
            "numRecords": self.rows,
            "minValues": {column: self.bounds[column][0] for column in bounded},
            "maxValues": {column: self.bounds[column][1] for column in bounded},
            "nullCount": {column: self.nulls[column] for column in before.get("nullCount", {}) if column in self.nulls},
        }


def replace(store: ObjectStore, copies: Mapping[str, Copy], secret: Collection[str]) -> None:
    """Replace files in the log of a table, and remove secrets from all statistics.

    Args:
        store: store with the old and new files of the table.
        copies: the new files, by the names of the replaced files.
        secret: texts to remove also from the bounds of files that no longer exist.
    """
    for name in sorted((one for one in store.sizes(LOG) if one[len(LOG) + 1 :][:20].isdigit()), reverse=True):
        if not name.endswith((".json", ".parquet")):
            continue
        data = store.get(name)
        changed = (_commit if name.endswith(".json") else _checkpoint)(data, copies, secret)
        if changed is not None:
            _put(store, name, changed)
            if name.endswith(".parquet"):
                _hint(store, name, len(changed))


def unlike(store: ObjectStore) -> list[str]:
    """List the files of a table whose size differs from the log, such as files rewritten under their old name.

    Delta readers cannot read these files. Missing files are not listed.
    """
    there, logged = store.sizes(), dict[str, int]()
    for name in sorted(one for one in there if one.startswith(LOG) and one.endswith(".json")):
        if name[len(LOG) + 1 :][:20].isdigit():
            adds = (json.loads(line).get("add") for line in store.get(name).decode().splitlines() if '"add"' in line)
            logged |= {unquote(add["path"]): add["size"] for add in adds if add}
    return sorted(name for name, size in logged.items() if there.get(name, size) != size)


def _commit(data: bytes, copies: Mapping[str, Copy], secret: Collection[str]) -> bytes | None:
    """Return the content of a commit's file with the new names; None if nothing changes."""
    lines = [line for line in data.decode().splitlines() if line.strip()]
    actions: list[dict[str, Any]] = [json.loads(line) for line in lines]
    gone = {unquote(action["remove"]["path"]) for action in actions if "remove" in action}
    rewritten: list[str] = []
    for line, action in zip(lines, actions, strict=True):
        added = _added(action["add"], copies, secret) if "add" in action else None
        rewritten.append(line if added is None else _line({**action, "add": added}))
        removed: dict[str, Any] = action.get("remove", {})
        copy = copies.get(unquote(removed.get("path", "")))
        if copy is not None and copy.name not in gone:
            rewritten.append(_line({"remove": {**removed, "path": copy.path(removed["path"]), "size": copy.size}}))
    return None if rewritten == lines else "\n".join(rewritten).encode()


def _checkpoint(data: bytes, copies: Mapping[str, Copy], secret: Collection[str]) -> bytes | None:
    """Return the content of a log checkpoint with the new names; None if nothing changes. A checkpoint is a Parquet
    file with the state of one version."""
    table = pq.read_table(io.BytesIO(data))
    if "add" not in table.column_names:
        return None
    before: list[dict[str, Any] | None] = table["add"].to_pylist()
    changed = [one and _added(one, copies, secret) for one in before]
    if not any(changed):
        return None
    place = table.schema.get_field_index("add")
    rows = [new or old for new, old in zip(changed, before, strict=True)]
    sink, field = io.BytesIO(), table.schema.field(place)
    pq.write_table(table.set_column(place, field, pa.array(rows, field.type)), sink)
    return sink.getvalue()


def _added(add: dict[str, Any], copies: Mapping[str, Copy], secret: Collection[str]) -> dict[str, Any] | None:
    """Return the log's entry for an added file with the data of its copy; None if the entry does not change."""
    copy, stats = copies.get(unquote(add["path"])), json.loads(add.get("stats") or "{}")
    if copy is not None:
        changed = {"path": copy.path(add["path"]), "size": copy.size}
        stats = stats and copy.stats(stats)
    elif any(
        isinstance(bound, str) and bound in secret
        for side in ("minValues", "maxValues")
        for bound in stats.get(side, {}).values()
    ):
        changed, stats = {}, {"numRecords": stats["numRecords"]}
    else:
        return None
    parsed = {"stats_parsed": None} if "stats_parsed" in add else {}
    return {**add, **changed, **parsed, "stats": json.dumps(stats) if stats else None}


def _line(action: Mapping[str, Any]) -> str:
    return json.dumps(action, separators=(",", ":"))


def _put(store: ObjectStore, name: str, data: bytes) -> None:
    """Rewrite a file of the log with its modification time, by which readers find the version at a point in time."""
    path = store.local_path(name)
    about = path and path.stat()
    store.put(name, data)
    if path and about:
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _hint(store: ObjectStore, checkpoint: str, size: int) -> None:
    """Correct the log's hint about its last checkpoint, if the hint is about this checkpoint."""
    try:
        hint = json.loads(store.get(HINT))
    except FileNotFoundError:
        return
    if hint.get("version") == int(checkpoint[len(LOG) + 1 :][:20]):
        hint.pop("checksum", None)
        store.put(HINT, json.dumps({**hint, "sizeInBytes": size}).encode())
