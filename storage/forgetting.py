"""Remove trajectories from every file of a lake.

A commit removes the rows from the current version of each table. Files of earlier versions are replaced by copies
without the rows, so any Delta reader can still read versions that policies pin. A copy is written first, then the log
names the copy (`storage.relog`), and the original file is deleted last. After a kill, the same command continues.
"""

import hashlib
import io
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from schemas.tables import TABLES
from schemas.tables.forgotten import TABLE as FORGOTTEN
from storage.filters import quoted
from storage.lake import Lake
from storage.objects import ObjectStore
from storage.relog import LOG, Copy, replace, unlike

NAMES = ("trajectory_id", "rejected_trajectory_id")
"""Columns with the id of a trajectory that the row belongs to."""
TEXTS = {"verdicts": "reason", "quality": "examples", "quality_overrides": "reason"}
"""Text columns that may name trajectories or pictures of other rows. Only the name is removed from such a row."""
GONE = "a forgotten trajectory"
"""Replacement for a removed name."""
PICTURES = {"screenshots": "sha256", "evaluation_screenshots": "sha256", "readings": "sha256"}
"""Tables about pictures, each with its column of the picture's sha256."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Names to remove from the texts of a column."""

    column: str
    pattern: str
    """Regular expression that matches the names."""

    def stand_in(self, rows: pa.Table) -> bool:
        """Whether any of the rows has one of the names."""
        found = pc.call_function("match_substring_regex", [rows[self.column]], pc.MatchSubstringOptions(self.pattern))
        return bool(pc.call_function("any", [found]).as_py())

    def taken_out(self, rows: pa.Table) -> pa.Table:
        """Return the rows with `GONE` in place of the names."""
        place = rows.schema.get_field_index(self.column)
        options = pc.ReplaceSubstringOptions(self.pattern, GONE)
        texts = pc.call_function("replace_substring_regex", [rows[self.column]], options)
        return rows.set_column(place, rows.schema.field(place), texts)


@dataclass(frozen=True, slots=True)
class Doomed:
    """Data to forget."""

    trajectories: Collection[str]
    screenshots: Collection[str]
    """sha256 of pictures that only forgotten trajectories contain."""

    def columns(self, table: str) -> dict[str, Collection[str]]:
        """Return the values, by column, that select the rows to remove; empty for a table without trajectories'
        data."""
        if table in PICTURES:
            return {PICTURES[table]: self.screenshots}
        names = [name for name in NAMES if name in TABLES[table].schema.names and table != FORGOTTEN.name]
        return dict.fromkeys(names, self.trajectories)

    def text(self, table: str) -> Texts | None:
        """Return the names to remove from a table's texts; None if the table has no such texts."""
        names = sorted({*self.trajectories, *self.screenshots})
        return Texts(TEXTS[table], rf"\b(?:{'|'.join(map(re.escape, names))})\b") if table in TEXTS and names else None


def successors(lake: Lake, names: Collection[str]) -> set[str]:
    """Return the trajectories that replay steps of the named trajectories, directly or through others.

    They have some of the same screens.
    """
    rows = lake.read("trajectories", ["trajectory_id", "continues"]).to_pylist()
    found, new = set[str](), set(names)
    while new := {row["trajectory_id"] for row in rows if row["continues"] in new} - found:
        found |= new
    return found - set(names)


def own_screenshots(lake: Lake, names: Collection[str]) -> set[str]:
    """Return the sha256 of pictures that only the named trajectories contain, and no rendered page."""
    with lake.connect(["steps", "evaluation_steps", "annotations", "recordings", "pages"]) as connection:
        connection.execute("CREATE TEMP TABLE names AS SELECT unnest($1) AS trajectory_id", [sorted(names)])
        rows = connection.sql("""
            WITH shown AS (
                SELECT trajectory_id, unnest([screenshot, next_screenshot] || frames) AS sha256 FROM steps
                UNION ALL
                SELECT trajectory_id, unnest([screenshot, next_screenshot] || frames) FROM evaluation_steps
                UNION ALL SELECT trajectory_id, unnest([before, after]) FROM annotations
                UNION ALL SELECT trajectory_id, unnest(frames) FROM recordings
            )
            SELECT sha256 FROM shown SEMI JOIN names USING (trajectory_id) WHERE sha256 IS NOT NULL
            EXCEPT SELECT sha256 FROM shown ANTI JOIN names USING (trajectory_id)
            EXCEPT SELECT sha256 FROM pages
        """).fetchall()
    return {sha256 for (sha256,) in rows}


def rows_of(lake: Lake, doomed: Doomed) -> dict[str, int]:
    """Count the rows to remove from the current tables, by table. Tables without such rows are left out."""
    counts = {table: lake.count(table, _where(doomed.columns(table))) for table in TABLES if doomed.columns(table)}
    return {table: count for table, count in counts.items() if count}


def erase(lake: Lake, doomed: Doomed) -> dict[str, int]:
    """Remove the data from the files of all versions, and return the number of removed current rows by table."""
    removed = rows_of(lake, doomed)
    for table in removed:
        columns = doomed.columns(table).items()
        lake.delete(table, " OR ".join(f"{name} IN ({quoted(sorted(values))})" for name, values in columns))
    for table in TABLES:
        columns, text = doomed.columns(table), doomed.text(table)
        if columns or text:
            _rewrite(lake, table, columns, text)
    lake.drop_copies()
    return removed


def unreadable(lake: Lake) -> dict[str, int]:
    """Count the files whose size differs from the Delta log, by table. Other Delta readers cannot read these files.

    `flywheel forget` of an earlier release rewrote files without renaming them. Tables without such files are left out.
    """
    if not lake.count(FORGOTTEN.name):
        return {}
    counts = {table: len(unlike(lake.files_of(table))) for table in TABLES}
    return {table: count for table, count in counts.items() if count}


def heal(lake: Lake) -> dict[str, int]:
    """Rename the unreadable files and correct the log. Return their number by table.

    After a kill, the next call continues.
    """
    found = unreadable(lake)
    for table in found:
        store = lake.files_of(table)
        copies = {name: _renamed(store, name) for name in unlike(store)}
        replace(store, copies, ())
        for name in copies:
            store.delete(name)
    if found:
        lake.drop_copies()
    return found


def _renamed(store: ObjectStore, name: str) -> Copy:
    """Copy a file to a new name."""
    data = store.get(name)
    copy = Copy.of(_name_of_copy(name, data), len(data), pq.read_table(pa.BufferReader(data)))
    store.put(copy.name, data)
    return copy


def _name_of_copy(name: str, data: bytes) -> str:
    """Return a name in the folder of the replaced file. The name depends on the content, so cached copies stay
    valid."""
    folder, slash, _ = name.rpartition("/")
    return f"{folder}{slash}part-{hashlib.sha256(name.encode() + data).hexdigest()[:32]}.parquet"


def _rewrite(lake: Lake, table: str, columns: Mapping[str, Collection[str]], text: Texts | None) -> None:
    """Replace the files of all versions of a table by copies without the rows and names to remove."""
    store = lake.files_of(table)
    copies = {name: copy for name in sorted(store.sizes()) if (copy := _copied(store, name, columns, text))}
    replace(store, copies, set[str]().union(*columns.values()))
    for name in copies:
        store.delete(name)


def _copied(store: ObjectStore, name: str, columns: Mapping[str, Collection[str]], text: Texts | None) -> Copy | None:
    """Copy a file without the rows and names to remove. Return None if the file has none of them."""
    if name.startswith(LOG) or not name.endswith(".parquet"):
        return None
    try:
        file = pq.ParquetFile(pa.BufferReader(store.get(name)))
    except FileNotFoundError:
        return None  # removed by another process
    there = {column: values for column, values in columns.items() if column in file.schema_arrow.names}
    named = text is not None and text.stand_in(file.read([text.column]))
    if not named and (not there or not file.read(list(there)).filter(_where(there)).num_rows):
        return None
    sink, compression = io.BytesIO(), file.metadata.row_group(0).column(0).compression
    kept = file.read().filter(~_where(there))
    kept = text.taken_out(kept) if text is not None else kept
    pq.write_table(kept, sink, compression=compression.replace("UNCOMPRESSED", "NONE"))
    data = sink.getvalue()
    copy = Copy.of(_name_of_copy(name, data), len(data), kept)
    store.put(copy.name, data)
    return copy


def _where(columns: Mapping[str, Collection[str]]) -> pads.Expression:
    """Return the expression that selects the rows to remove."""
    found = pads.scalar(False)
    for name, values in columns.items():
        # a row without an id stays
        found = found | (pads.field(name).is_valid() & pads.field(name).isin(pa.array(sorted(values), pa.string())))
    return found
