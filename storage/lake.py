"""Store and read the lake: Delta tables of Parquet at one address. Rows are written by key (`storage.table`)."""

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import psutil
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable
from pydantic import ValidationError

from common.process import home
from schemas.config.sections import LakeConfig
from schemas.failure import LakeError, UsageError
from schemas.problem import named_problem
from schemas.table import SCHEMA_VERSION, Row, Table
from schemas.tables import TABLES
from storage import filters, upkeep
from storage.address import Address, require_bucket, resolve
from storage.blobs import Blobs
from storage.cache import FileCache
from storage.explained import explained
from storage.objects import ObjectStore
from storage.scan import last_of_each_key, scan
from storage.schema_marker import SchemaMarker, make_marker, read_marker, renew_marker
from storage.table import StoredTable, sizes_of
from storage.texts import TextIndex
from storage.tombstones import Tombstones

R = TypeVar("R", bound=Row)
Columns = Iterable[str] | Mapping[str, pads.Expression]

_MEMORY = 256 << 20
"""Minimum memory of a query per thread, in bytes. Above its memory limit, a query continues on disk. Every join and
sort keeps some blocks per thread, for data of any size. Half of this memory was too little to select the training data
of a lake of 1,200 trajectories and 200 reviews."""
_UNPACKED = 4
"""Memory limit of a query, as a multiple of the size of its tables' files without pictures. A sort of all rows needs
about this much."""
_SHARE = 4
"""Divisor of the machine's memory that gives the upper bound of this limit."""
_THREADS = 4
"""Maximum threads of a query. More threads would only divide the memory."""


class Lake:
    """Tables of one lake. Threads can share an instance; a forked process must open the lake again."""

    def __init__(self, place: Address, mark: SchemaMarker, config: LakeConfig) -> None:
        self._place = place
        self._config = config
        self._mark = mark
        self._lock = threading.RLock()
        self._noted: list[set[str]] = []
        self._texts = TextIndex()
        self._tombstones = Tombstones(self.forgotten)
        self._copies = None if place.local or not config.cache_mb else self._cache(config.cache_mb * 1_000_000)
        self._tables = {
            name: StoredTable(contract, place, self._lock, self._copies) for name, contract in TABLES.items()
        }

    @classmethod
    def open(cls, config: LakeConfig, create: bool = True, oldest: int = SCHEMA_VERSION) -> "Lake":
        """Open the lake at `lake.uri`. Make a lake if the address is empty and `create` is set.

        Args:
            config: the lake's address and settings.
            create: whether to make a lake at an empty address.
            oldest: the oldest schema version that is accepted; only an upgrade accepts an older version.

        Raises:
            UsageError: the address has an unknown form. The message has a possible one.
            LakeError: the address has no lake or a lake of another schema version, or is unreachable; or credentials or
                the bucket are missing. The message has the address or variable and the fix.
        """
        place = resolve(config)
        if place.uri.startswith("memory://"):
            raise UsageError(f"`lake.uri` is {config.uri}.", "Use a folder or s3://bucket/prefix.")
        with explained(place.uri):
            require_bucket(place)
            store = place.store()
            mark = read_marker(store, place.uri, oldest)
            if mark is None and not create:
                raise LakeError(f"There is no lake at {place.uri}.", "Check `lake.uri`; `flywheel run` makes a lake.")
            mark = mark or make_marker(store, place.uri)
        place.patience.allow(config.patience_s)
        return cls(place, mark, config)

    @property
    def uri(self) -> str:
        """The lake's absolute address."""
        return self._place.uri

    @property
    def schema_version(self) -> int:
        """Schema version of the lake's tables."""
        return self._mark.schema_version

    def finish_upgrade(self) -> None:
        """Record that the lake has the current schema version. This is the last step of an upgrade."""
        self._mark = renew_marker(self._place.store(), self._mark)

    @property
    def lake_id(self) -> str:
        """Unique name of the lake, which never changes."""
        return self._mark.lake_id

    @property
    def blobs(self) -> Blobs:
        """Data outside the tables, such as checkpoints, in the folder `blobs/`."""
        return Blobs(self._place.store("blobs"))

    def append(self, table: str, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> int:
        """Add rows whose key does not exist yet, and return their number.

        Existing rows do not change. Rows of forgotten trajectories are not written. Rows that name their table (row
        objects, and Arrow tables that a lake returned) go to no other one. A mapping names none: its fields are
        checked, and a step of an evaluation has the fields of `steps`.

        Raises:
            LakeError: the table is unknown, a row does not fit it, an Arrow table is of another one, the disk is full,
                or the storage is unreachable.
        """
        stored = self._table(table)
        batch = self._tombstones.without(stored.contract, _batch(stored.contract, rows))
        return stored.append(batch) if batch.num_rows else 0

    def forgotten(self) -> set[str]:
        """Return the ids of forgotten trajectories, and of recordings without a trajectory."""
        return set(self.read("forgotten", ["trajectory_id"])["trajectory_id"].to_pylist())

    def upsert(self, table: str, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> None:
        """Add rows, and replace existing rows of the same key. Raises the errors of `append`."""
        stored = self._table(table)
        batch = self._tombstones.without(stored.contract, _batch(stored.contract, rows))
        if batch.num_rows:
            stored.upsert(batch)

    def delete(self, table: str, predicate: str) -> int:
        """Remove rows that fulfil an SQL predicate, and return their number."""
        stored = self._table(table)

        def attempt(handle: DeltaTable) -> int:
            with self.connect([table], {table: handle.version()}) as connection:
                doomed = connection.sql(f'SELECT * FROM "{table}" WHERE {predicate}').to_arrow_table()
                touched = filters.partitions(stored.contract, doomed)
                within = filters.predicate(touched) or "true"
                left = connection.sql(f'SELECT * FROM "{table}" WHERE ({within}) AND ({predicate}) IS NOT TRUE')
                if doomed.num_rows:
                    stored.rewrite(handle, left.to_arrow_table().cast(stored.contract.schema), touched)
            return doomed.num_rows

        return 0 if stored.handle() is None else stored.change(attempt)

    def read(
        self, table: str, columns: Columns | None = None, where: filters.Where | None = None, version: int | None = None
    ) -> pa.Table:
        """Return rows of a table, in no order. A table that does not exist yet has no rows.

        Args:
            table: name of the table.
            columns: names of columns, or expressions by name; all columns if not given.
            where: a pyarrow expression, or values by column (a list means any of them, None means null).
            version: an earlier version of the table; the latest if not given.

        Raises:
            LakeError: the table or version is unknown, `maintain` removed files of the version, or the storage is
                unreachable.
        """
        stored = self._read(table)
        schema = stored.contract.schema
        wanted = dict(columns) if isinstance(columns, Mapping) else list(columns or schema.names)
        condition = filters.expression(where)
        found = stored.read(version, lambda there: there.to_table(columns=wanted, filter=condition), where)
        if isinstance(wanted, dict):
            return found
        return found.cast(pa.schema([schema.field(name) for name in wanted], schema.metadata))

    def rows(self, kind: type[R], where: filters.Where | None = None, version: int | None = None) -> list[R]:
        """Return rows as objects of a row class. They are not validated again."""
        table = next(name for name, contract in TABLES.items() if contract.row is kind)
        return [kind.model_construct(**row) for row in self.read(table, where=where, version=version).to_pylist()]

    def batches(
        self, table: str, columns: Iterable[str], where: filters.Where | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches, for tables with pictures. Raises the errors of `read`."""
        stored, wanted = self._read(table), list(columns)
        schema = pa.schema([stored.contract.schema.field(name) for name in wanted])
        try:
            found = scan(self._place.patiently, stored.dataset(version, where), wanted, filters.expression(where))
            yield from (batch.cast(schema) for batch in found if batch.num_rows)
        except FileNotFoundError as error:
            raise stored.lost(version) from error

    def count(self, table: str, where: filters.Where | None = None, version: int | None = None) -> int:
        """Count the rows of a table. Raises the errors of `read`."""
        condition = filters.expression(where)
        return self._read(table).read(version, lambda there: there.count_rows(filter=condition))

    def find_text(self, text: str, tables: Iterable[str], iteration: int | None = None) -> pa.Table:
        """Return the ids of the trajectories that hold a text, in any case, as a table with the column
        `trajectory_id`. An id may be in several rows.

        The first search of a process reads the texts of all data files, and later ones only those of new files.

        Args:
            text: the text, of at least one character.
            tables: tables of `storage.texts.TEXTS`, whose latest version is searched.
            iteration: search only the rows of this iteration.
        """
        found = [self._texts.find(self._read(table), text, iteration) for table in tables]
        chunks = [chunk for one in found for chunk in one.chunks]
        return pa.table({"trajectory_id": pa.chunked_array(chunks, pa.string())})

    def iterations(self, table: str) -> list[int]:
        """Return the iterations with rows in a table that is partitioned by iteration, in order. Reads no rows."""
        stored = self._read(table)
        with self._lock:
            handle = stored.handle()
            return [] if handle is None else sorted({int(part["iteration"]) for part in handle.partitions()})

    @contextmanager
    def noting(self) -> Iterator[set[str]]:
        """Collect the names of the tables that any thread reads while the context is open."""
        names = set[str]()
        self._noted.append(names)
        try:
            yield names
        finally:
            self._noted = [one for one in self._noted if one is not names]

    def _read(self, table: str) -> StoredTable:
        stored = self._table(table)
        for names in self._noted:
            names.add(table)
        return stored

    def version(self, table: str) -> int | None:
        """Return the table's latest version, or None if it does not exist yet."""
        handle = self._table(table).handle()
        return None if handle is None else handle.version()

    def versions(self) -> dict[str, int]:
        """Return the latest version of every table that exists, in the form of `policies.data_versions`."""
        return {name: version for name in TABLES if (version := self.version(name)) is not None}

    def drop_copies(self) -> None:
        """Remove this machine's cached copies of the lake's files. Only a lake on S3 has cached copies."""
        if self._copies is not None:
            self._copies.clear()

    def files_of(self, table: str) -> ObjectStore:
        """Return the files of all versions of a table, for code that removes data for good."""
        return self._place.store("tables", self._table(table).contract.name)

    def versions_at(self, moment: datetime) -> dict[str, int]:
        """Return the version of every table at a point in time, without tables that did not exist yet."""
        found = {name: stored.version_at(moment) for name, stored in self._tables.items()}
        return {name: version for name, version in found.items() if version is not None}

    def missing(self, versions: Mapping[str, int]) -> dict[str, int]:
        """Return the versions that cannot be read whole, because files of them were removed."""
        return {name: version for name, version in versions.items() if self._table(name).is_lost(version)}

    def connect(
        self, tables: Iterable[str] | None = None, versions: Mapping[str, int] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection with each table as a view. It needs no extension, also for a lake on S3.

        Args:
            tables: tables that become views; all tables if not given.
            versions: version of each table; a table without an entry is empty. The latest versions if not given.
        """
        threads = min(_THREADS, os.cpu_count() or 1)
        connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "temp_directory": str(Path(tempfile.gettempdir()) / "flywheel-queries"),
                "threads": threads,
            }
        )
        connection.execute("SET TimeZone = 'UTC'")
        read = 0
        for stored in [self._read(name) for name in tables or TABLES]:
            pinned = None if versions is None else versions.get(stored.contract.name)
            handle = stored.handle() if versions is None else None if pinned is None else stored.at(pinned)
            self._view(connection, stored, handle)
            read += self._packed(stored, handle)
        most = max(threads * _MEMORY, min(_UNPACKED * read, psutil.virtual_memory().total // _SHARE))
        connection.execute(f"SET memory_limit = '{most >> 20}MiB'")
        return connection

    def _view(self, connection: duckdb.DuckDBPyConnection, stored: StoredTable, handle: DeltaTable | None) -> None:
        """Make a view over local Parquet files or cached copies of them; without either, over Arrow's reader."""
        contract = stored.contract
        with self._lock:
            try:
                files = [] if handle is None else stored.files(handle)
            except FileNotFoundError as error:
                raise stored.lost(handle.version() if handle else None) from error
            if handle is None or files == []:
                connection.register(contract.name, contract.schema.empty_table())
                return
            there = _names(handle)
            if files is None:
                connection.register(f"{contract.name}_there", stored.snapshot(handle))
                source = f'SELECT {filters.columns(contract, there)} FROM "{contract.name}_there"'
                connection.execute(f'CREATE VIEW "{contract.name}" AS {source}')
                return
        connection.execute(filters.view(contract, files, there))

    def _packed(self, stored: StoredTable, handle: DeltaTable | None) -> int:
        """Return the size of a version's files in bytes; 0 for a table of pictures, because no query sorts pictures."""
        if handle is None or any(pa.types.is_binary(field.type) for field in stored.contract.schema):
            return 0
        with self._lock:
            return sum(sizes_of(handle).values())

    def upgrade(self, table: str) -> list[str]:
        """Add the missing columns of a table from an older lake, in one commit, and return their names."""
        stored = self._table(table)
        schema = stored.contract.schema
        lacked: list[str] = []

        def attempt(handle: DeltaTable) -> int:
            lacked[:] = [name for name in schema.names if name not in _names(handle)]
            if not lacked:
                return 0
            with self.connect([table], {table: handle.version()}) as connection:
                batches = connection.table(table).to_arrow_reader()
                rows = pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches))
                stored.widen(handle, rows)
            return 1

        return lacked if stored.handle() is not None and stored.change(attempt) else []

    def compact(self, table: str) -> int:
        """Merge the small files of a table, and return the decrease in files."""
        handle = self._table(table).handle()
        with self._lock:
            return 0 if handle is None else self._place.patiently(lambda: upkeep.compact(handle, table))

    def maintain(self, retention_hours: float | None = None) -> None:
        """Merge small files and remove old files. Call it once per iteration, before a training pins table versions.

        Files that only old versions need are removed after `retention_hours` (`lake.keep_hours` if not given). Versions
        in `policies.data_versions` stay readable.
        """
        hours = self._config.keep_hours if retention_hours is None else retention_hours
        pins = upkeep.pinned_versions(self.read("policies", columns=["data_versions"]))
        for name in TABLES:
            self.compact(name)
            handle, needed = self._table(name).handle(), pins.get(name, set())
            if handle is not None:
                with self._lock:
                    self._place.patiently(partial(upkeep.vacuum, handle, needed, hours))

    def size_bytes(self) -> int:
        """Return the size of the lake in bytes, blobs and old versions included."""
        return sum(self._place.store().sizes().values())

    def _cache(self, most_bytes: int) -> FileCache:
        place, folder = self._place, home() / "cache" / self.lake_id
        return FileCache(folder, place.path("tables"), place.filesystem, most_bytes, lambda: self.version("forgotten"))

    def _table(self, name: str) -> StoredTable:
        if name not in self._tables:
            raise LakeError(f"There is no table `{name}`.", f"The tables are {', '.join(sorted(TABLES))}.")
        return self._tables[name]


def _names(handle: DeltaTable) -> set[str]:
    return {field.name for field in handle.schema().fields}


def _batch(contract: Table, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> pa.Table:
    """Convert rows to Arrow. If several rows have the same key, the last row is kept."""
    if isinstance(rows, pa.Table):
        table: pa.Table = rows
        named = (table.schema.metadata or {}).get(b"flywheel.table", contract.name.encode()).decode()
        if named != contract.name:
            raise LakeError(f"`{contract.name}`: the rows are of table `{named}`.", "Write rows to their own table.")
        return last_of_each_key(table.select(contract.schema.names).cast(contract.schema), contract.key)
    whole = list(rows)
    try:
        return last_of_each_key(contract.arrow(whole), contract.key)
    except ValidationError as error:
        raise _refusal(contract, whole, error) from error


def _refusal(contract: Table, rows: Sequence[Row | Mapping[str, Any]], error: ValidationError) -> LakeError:
    """Return the error about the first row that does not fit, with its table, number, field and key."""
    for number, row in enumerate(rows):
        try:
            contract.arrow([row])
        except ValidationError as found:
            error = found
        else:
            continue
        given: Mapping[str, Any] = row.model_dump() if isinstance(row, Row) else row
        named = ", ".join(f"{name} {given[name]!r}"[:80] for name in contract.key if name in given)
        problem = f"`{contract.name}`: row {number}{f' ({named})' if named else ''}: {named_problem(error)}."
        return LakeError(problem, f"The columns of `{contract.name}` are in docs/tables.md; nothing was written.")
    raise AssertionError
