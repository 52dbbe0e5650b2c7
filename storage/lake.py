"""The lake: Delta tables of Parquet at one address, written by key (`storage.table`) and read by any engine."""

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
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

from common.process import home
from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from schemas.table import SCHEMA_VERSION, Row, Table
from schemas.tables import TABLES
from storage import filters, upkeep
from storage.address import Address, require_bucket, resolve
from storage.blobs import Blobs
from storage.cache import FileCache
from storage.explained import explained
from storage.keys import last_of_each_key
from storage.objects import ObjectStore
from storage.scan import scan
from storage.schema_marker import SchemaMarker, make_marker, read_marker, renew_marker
from storage.table import StoredTable, sizes_of
from storage.tombstones import Tombstones

R = TypeVar("R", bound=Row)
Columns = Iterable[str] | Mapping[str, pads.Expression]

_MEMORY = 256 << 20
"""Minimum bytes of a query for each of its threads; above its limit a query continues on disk. Every join and sort
keeps some blocks per thread, whatever the size of the data: half of this was too little to select the training data
of a lake of 1,200 trajectories and 200 reviews."""
_UNPACKED = 4
"""Bytes of a query for each byte of its tables' files, pictures left out: about the need of a sort of all rows."""
_SHARE = 4
"""A query uses at most one in so many bytes of the machine's memory."""
_THREADS = 4
"""Maximum threads of a query; more would only divide that memory."""


class Lake:
    """Tables of one lake. Threads can share it; processes cannot share it across a fork."""

    def __init__(self, place: Address, mark: SchemaMarker, config: LakeConfig) -> None:
        self._place = place
        self._config = config
        self._mark = mark
        self._lock = threading.RLock()
        self._noted: list[set[str]] = []
        self._tombstones = Tombstones(self._forgotten)
        self._copies = None if place.local or not config.cache_mb else self._cache(config.cache_mb * 1_000_000)
        self._tables = {
            name: StoredTable(contract, place, self._lock, self._copies) for name, contract in TABLES.items()
        }

    @classmethod
    def open(cls, config: LakeConfig, create: bool = True, oldest: int = SCHEMA_VERSION) -> "Lake":
        """Open the lake at `lake.uri`, or make it if the place is empty and `create` is set.

        Args:
            config: the lake's address and settings.
            create: whether to make a lake.
            oldest: the oldest schema version that is opened; only an upgrade opens an old lake.

        Raises:
            LakeError: not a lake, a lake of another schema version, unreachable, credentials or bucket missing; the
                message has the address or variable and the fix.
        """
        place = resolve(config)
        if place.uri.startswith("memory://"):
            raise LakeError(f"`lake.uri` is {config.uri}.", "Use a folder or s3://bucket/prefix.")
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
        """Version of its tables' contracts."""
        return self._mark.schema_version

    def finish_upgrade(self) -> None:
        """Mark the lake as one of the current schema version; the last step of an upgrade."""
        self._mark = renew_marker(self._place.store(), self._mark)

    @property
    def lake_id(self) -> str:
        """Unique name of the lake, which never changes."""
        return self._mark.lake_id

    @property
    def blobs(self) -> Blobs:
        """Data of the lake that is no table, such as checkpoints, under `blobs/`."""
        return Blobs(self._place.store("blobs"))

    def append(self, table: str, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> int:
        """Add the rows whose key does not exist yet, and return their number.

        Other rows stay as they are; rows of forgotten trajectories are not written.

        Raises:
            LakeError: unknown table, full disk, unreachable storage.
            pydantic.ValidationError: a row that breaks the contract.
        """
        stored = self._table(table)
        batch = self._tombstones.without(stored.contract, _batch(stored.contract, rows))
        return stored.append(batch) if batch.num_rows else 0

    def _forgotten(self) -> set[str]:
        return set(self.read("forgotten", ["trajectory_id"])["trajectory_id"].to_pylist())

    def upsert(self, table: str, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> None:
        """Add rows, and replace those whose key exists; raises as `append` does."""
        stored = self._table(table)
        batch = self._tombstones.without(stored.contract, _batch(stored.contract, rows))
        if batch.num_rows:
            stored.upsert(batch)

    def delete(self, table: str, predicate: str) -> int:
        """Remove the rows for which an SQL predicate holds, and return their number."""
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
        """Return rows of a table, in no order; an empty table of its schema if it does not exist yet.

        Args:
            table: its name.
            columns: names, or expressions by name; all columns if not given.
            where: a pyarrow expression, or values by column (a list means any of them, None means null).
            version: an earlier version of the table; the latest if not given.

        Raises:
            LakeError: unknown table or version, a version whose files `maintain` removed, unreachable storage.
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
        """Return `read`'s rows of the table of this kind of row, without validation: they were valid when written."""
        table = next(name for name, contract in TABLES.items() if contract.row is kind)
        return [kind.model_construct(**row) for row in self.read(table, where=where, version=version).to_pylist()]

    def batches(
        self, table: str, columns: Iterable[str], where: filters.Where | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield `read`'s rows a few at a time, for pictures; raises as `read` does."""
        stored, wanted = self._read(table), list(columns)
        schema = pa.schema([stored.contract.schema.field(name) for name in wanted])
        try:
            found = scan(self._place.patiently, stored.dataset(version, where), wanted, filters.expression(where))
            yield from (batch.cast(schema) for batch in found if batch.num_rows)
        except FileNotFoundError as error:
            raise stored.lost(version) from error

    def count(self, table: str, where: filters.Where | None = None, version: int | None = None) -> int:
        """Count a table's rows; raises as `read` does."""
        condition = filters.expression(where)
        return self._read(table).read(version, lambda there: there.count_rows(filter=condition))

    def iterations(self, table: str) -> list[int]:
        """Return the iterations that an iteration-partitioned table has rows of, in order; reads no rows."""
        stored = self._table(table)
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
        """Return the latest version of every table that exists, as pinned in a policy's `data_versions`."""
        return {name: version for name in TABLES if (version := self.version(name)) is not None}

    def drop_copies(self) -> None:
        """Remove this machine's copies of the lake's files; a lake on this machine has none."""
        if self._copies is not None:
            self._copies.clear()

    def files_of(self, table: str) -> ObjectStore:
        """Return the files of all versions of a table, for code that removes data for good."""
        return self._place.store("tables", self._table(table).contract.name)

    def versions_at(self, moment: datetime) -> dict[str, int]:
        """Return the version that every table had at a moment; tables that did not exist yet are left out."""
        found: dict[str, int] = {}
        for name, stored in self._tables.items():
            version = stored.version_at(moment)
            if version is not None:
                found[name] = version
        return found

    def missing(self, versions: Mapping[str, int]) -> dict[str, int]:
        """Return those of the versions that cannot be read whole any more, since files of theirs were removed."""
        return {name: version for name, version in versions.items() if self._table(name).is_lost(version)}

    def connect(
        self, tables: Iterable[str] | None = None, versions: Mapping[str, int] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection with each table as a view, without any extension, local and S3 alike.

        Args:
            tables: the views to make; all tables if not given.
            versions: pinned versions; a table without an entry did not exist then and is empty.
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
        """Make a view over the table's local Parquet files or their local copies, else over Arrow's reader."""
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
        """Return the bytes of a version's files; 0 for a table of pictures, which no query sorts."""
        if handle is None or any(pa.types.is_binary(field.type) for field in stored.contract.schema):
            return 0
        with self._lock:
            return sum(sizes_of(handle).values())

    def upgrade(self, table: str) -> list[str]:
        """Add the columns that a table of an older lake lacks, in one commit, and return their names."""
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
        """Merge a table's small files, and return how many fewer files there are."""
        handle = self._table(table).handle()
        with self._lock:
            return 0 if handle is None else self._place.patiently(lambda: upkeep.compact(handle, table))

    def maintain(self, retention_hours: float | None = None) -> None:
        """Keep file counts small; call it once an iteration, before versions are pinned for training.

        Files that only old versions need are removed after `retention_hours` (`lake.keep_hours` if not given), except
        those of versions in `policies.data_versions`, which stay readable for good.
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
        """Return the bytes of everything at the lake's address, blobs and old versions included."""
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
    """Convert rows to Arrow; of equal keys the last row stays."""
    if isinstance(rows, pa.Table):
        table: pa.Table = rows
        return last_of_each_key(table.select(contract.schema.names).cast(contract.schema), contract.key)
    return last_of_each_key(contract.arrow(rows), contract.key)
