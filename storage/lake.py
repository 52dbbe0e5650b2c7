"""The lake: Delta tables of Parquet at one address, written by key and read by anyone.

No process ever writes a key twice. Each append reads which keys are there at version v and commits the rest
as version v + 1 or not at all (`max_commit_retries=0`: Delta gives each version number to one writer only); who
comes second looks again at what is there now. A commit is the atom: killed before it, nothing was written.
"""

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from schemas.table import SCHEMA_VERSION, Row, Table
from schemas.tables import TABLES
from storage import filters, upkeep
from storage.address import Address, require_bucket, resolve
from storage.blobs import Blobs
from storage.keys import KeyIndex, last_of_each_key, without
from storage.mark import Mark, make_mark, read_mark, renew_mark

Columns = Iterable[str] | Mapping[str, pads.Expression]

_STRICT = CommitProperties(max_commit_retries=0)
_ATTEMPTS = 200
_TOGETHER = 256
"""Rows of one batch of a streaming read, pictures among them."""
_MEMORY_MB = 256
"""What a query may hold; beyond it, it goes on from disk. Some hundred bytes a step: enough for a million of them."""
_THREADS = 4
"""More would only share that memory out."""


class Lake:
    """The tables of one lake. Safe to share between threads; not across a fork."""

    def __init__(self, place: Address, mark: Mark) -> None:
        self._place = place
        self._mark = mark
        self._lock = threading.RLock()
        self._handles: dict[str, DeltaTable] = {}
        self._indexes: dict[str, KeyIndex] = {}

    @classmethod
    def open(cls, config: LakeConfig, create: bool = True, oldest: int = SCHEMA_VERSION) -> "Lake":
        """The lake at `lake.uri`, made there if the place is empty and `create` is set.

        Args:
            config: where it is.
            create: whether to make one.
            oldest: the oldest schema version that is opened; only an upgrade opens an old lake.

        Raises:
            LakeError: not a lake, a lake of another schema version, out of reach, credentials or bucket missing;
                names the address or variable and the mend.
        """
        place = resolve(config)
        if place.uri.startswith("memory://"):
            raise LakeError(f"`lake.uri` is {config.uri}.", "Use a folder or s3://bucket/prefix.")
        with place.explained():
            require_bucket(place)
            store = place.store()
            mark = read_mark(store, place.uri, oldest)
            if mark is None and not create:
                raise LakeError(f"There is no lake at {place.uri}.", "Check `lake.uri`; `flywheel run` makes a lake.")
            return cls(place, mark or make_mark(store, place.uri))

    @property
    def uri(self) -> str:
        """The lake's absolute address."""
        return self._place.uri

    @property
    def schema_version(self) -> int:
        """The version of its tables' contracts."""
        return self._mark.schema_version

    def finish_upgrade(self) -> None:
        """Marks the lake as one of today's schema version; the last step of an upgrade."""
        with self._place.explained():
            self._mark = renew_mark(self._place.store(), self._mark)

    @property
    def lake_id(self) -> str:
        """The lake's own name: it never changes and no other lake has it."""
        return self._mark.lake_id

    @property
    def blobs(self) -> Blobs:
        """The lake's bytes that are no tables: checkpoints and the like, under `blobs/`."""
        return Blobs(self._place.store("blobs"))

    def append(self, table: str, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> int:
        """Adds the rows whose key is not there yet and returns how many those were; the others are left alone.

        Raises:
            LakeError: unknown table, full disk, storage out of reach.
            pydantic.ValidationError: a row that breaks the contract.
        """
        contract = _contract(table)
        batch = last_of_each_key(_arrow(contract, rows), contract.key)

        def attempt(handle: DeltaTable) -> int:
            missing = self._index(contract).missing(self._snapshot(contract, handle), batch)
            if missing.num_rows:
                self._write(contract, handle, missing)
            return missing.num_rows

        return self._commit(contract, attempt) if batch.num_rows else 0

    def upsert(self, table: str, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> None:
        """Adds rows, and replaces those whose key is already there; raises as `append` does."""
        contract = _contract(table)
        batch = last_of_each_key(_arrow(contract, rows), contract.key)

        def attempt(handle: DeltaTable) -> int:
            touched = filters.partitions(contract, batch)
            there = self._snapshot(contract, handle).to_table(filter=filters.expression(touched)).cast(contract.schema)
            rows = pa.concat_tables([without(there, batch, contract.key), batch])
            self._rewrite(contract, handle, rows, touched)
            return batch.num_rows

        if batch.num_rows:
            self._commit(contract, attempt)

    def delete(self, table: str, predicate: str) -> int:
        """Removes the rows for which an SQL predicate holds and returns how many those were."""
        contract = _contract(table)
        if self._handle(contract) is None:
            return 0

        def attempt(handle: DeltaTable) -> int:
            with self.connect([table], {table: handle.version()}) as connection:
                doomed = connection.sql(f'SELECT * FROM "{table}" WHERE {predicate}').to_arrow_table()
                touched = filters.partitions(contract, doomed)
                within = filters.predicate(touched) or "true"
                left = f'SELECT * FROM "{table}" WHERE ({within}) AND ({predicate}) IS NOT TRUE'
                if doomed.num_rows:
                    self._rewrite(
                        contract, handle, connection.sql(left).to_arrow_table().cast(contract.schema), touched
                    )
            return doomed.num_rows

        return self._commit(contract, attempt)

    def read(
        self, table: str, columns: Columns | None = None, where: filters.Where | None = None, version: int | None = None
    ) -> pa.Table:
        """Rows of a table, in no order; an empty table of its schema if it does not exist yet.

        Args:
            table: its name.
            columns: names, or expressions by name; all columns if not given.
            where: a pyarrow expression, or values by column (a list means any of them, None means null).
            version: an earlier version of the table; the latest if not given.

        Raises:
            LakeError: unknown table or version, a version whose files `maintain` removed, storage out of reach.
        """
        contract = _contract(table)
        wanted = dict(columns) if isinstance(columns, Mapping) else list(columns or contract.schema.names)
        with self._place.explained():
            try:
                found = self._dataset(contract, version).to_table(columns=wanted, filter=filters.expression(where))
            except FileNotFoundError as error:
                raise self._no_version(contract, version) from error
        if isinstance(wanted, dict):
            return found
        return found.cast(pa.schema([contract.schema.field(name) for name in wanted], contract.schema.metadata))

    def batches(
        self, table: str, columns: Iterable[str], where: filters.Where | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that `read` would give, a few at a time: for pictures; raises as `read` does."""
        contract, wanted = _contract(table), list(columns)
        schema = pa.schema([contract.schema.field(name) for name in wanted])
        with self._place.explained():
            found = self._dataset(contract, version).to_batches(
                columns=wanted,
                filter=filters.expression(where),
                batch_size=_TOGETHER,
                batch_readahead=1,
                fragment_readahead=1,
            )
            try:
                yield from (batch.cast(schema) for batch in found if batch.num_rows)
            except FileNotFoundError as error:
                raise self._no_version(contract, version) from error

    def count(self, table: str, where: filters.Where | None = None) -> int:
        """How many rows a table has."""
        with self._place.explained():
            return self._dataset(_contract(table)).count_rows(filter=filters.expression(where))

    def version(self, table: str) -> int | None:
        """The table's latest version, or None if it does not exist yet."""
        handle = self._handle(_contract(table))
        return None if handle is None else handle.version()

    def versions(self) -> dict[str, int]:
        """The latest version of every table that exists: what a policy's `data_versions` pins."""
        return {name: version for name in TABLES if (version := self.version(name)) is not None}

    def connect(
        self, tables: Iterable[str] | None = None, versions: Mapping[str, int] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection in which each table is a view, without any extension, local and S3 alike.

        Args:
            tables: the views to make; all tables if not given.
            versions: pinned versions; a table that is not among them did not exist then and is empty.
        """
        connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "memory_limit": f"{_MEMORY_MB}MiB",
                "temp_directory": str(Path(tempfile.gettempdir()) / "flywheel-queries"),
                "threads": min(_THREADS, os.cpu_count() or 1),
            }
        )
        connection.execute("SET TimeZone = 'UTC'")
        for contract in [_contract(name) for name in tables or TABLES]:
            pinned = None if versions is None else versions.get(contract.name, _NEVER)
            self._view(connection, contract, pinned)
        return connection

    def _view(self, connection: duckdb.DuckDBPyConnection, contract: Table, version: int | None) -> None:
        """Makes a view over the table: its own Parquet files here, Arrow's reader on S3, nothing if there are none."""
        with self._lock, self._place.explained():
            handle = self._handle(contract) if version is None else self._pinned(contract, version)
            files = [] if handle is None else handle.file_uris()
            if handle is None or not files:
                connection.register(contract.name, contract.schema.empty_table())
                return
            there = _names(handle)
            if not self._place.local:
                connection.register(f"{contract.name}_there", self._snapshot(contract, handle))
                source = f'SELECT {filters.columns(contract, there)} FROM "{contract.name}_there"'
                connection.execute(f'CREATE VIEW "{contract.name}" AS {source}')
                return
        connection.execute(filters.view(contract, files, there))

    def upgrade(self, table: str) -> bool:
        """Gives a table of an older lake the columns it lacks, in one commit; says whether it lacked any."""
        contract = _contract(table)

        def attempt(handle: DeltaTable) -> int:
            if not set(contract.schema.names) - _names(handle):
                return 0
            with self.connect([table], {table: handle.version()}) as connection:
                batches = connection.table(table).to_arrow_reader()
                rows = pa.RecordBatchReader.from_batches(
                    contract.schema, (batch.cast(contract.schema) for batch in batches)
                )
                write_deltalake(
                    handle,
                    rows,
                    mode="overwrite",
                    schema_mode="overwrite",
                    partition_by=list(contract.partition_by),
                    commit_properties=_STRICT,
                    writer_properties=upkeep.writer_properties(table),
                )
            return 1

        return self._handle(contract) is not None and bool(self._commit(contract, attempt))

    def compact(self, table: str) -> int:
        """Merges a table's small files and returns how many files that took away."""
        handle = self._handle(_contract(table))
        with self._lock, self._place.explained():
            return 0 if handle is None else upkeep.compact(handle, table)

    def maintain(self, retention_hours: float = 24.0) -> None:
        """Keeps file counts small; call it once an iteration, before versions are pinned for training.

        Files that only old versions need are removed after `retention_hours`, except those of versions that
        `policies.data_versions` pins: these stay readable for good.
        """
        pins = upkeep.pinned_versions(self.read("policies", columns=["data_versions"]))
        for name in TABLES:
            self.compact(name)
            handle = self._handle(_contract(name))
            if handle is not None:
                with self._lock, self._place.explained():
                    upkeep.vacuum(handle, pins.get(name, set()), retention_hours)

    def size_bytes(self) -> int:
        """Bytes of everything at the lake's address, blobs and old versions included."""
        with self._place.explained():
            return int(self._place.filesystem.du(self._place.uri))

    def _commit(self, contract: Table, attempt: Callable[[DeltaTable], int]) -> int:
        with self._lock, self._place.explained():
            for turn in range(_ATTEMPTS):
                try:
                    return attempt(self._handle(contract) or self._create(contract))
                except CommitFailedError:
                    time.sleep(random.uniform(0.0, min(0.01 * 2**turn, 0.5)))
                except SchemaMismatchError as error:
                    problem = f"Table `{contract.name}` of {self.uri} has other columns than this flywheel: {error}."
                    raise LakeError(problem, "Use the flywheel it was made with, or a new `lake.uri`.") from error
        problem = f"Table `{contract.name}` of {self.uri} was busy for {_ATTEMPTS} attempts."
        raise LakeError(problem, "Run fewer writers at once.")

    def _write(self, contract: Table, handle: DeltaTable, rows: pa.Table) -> None:
        properties = upkeep.writer_properties(contract.name)
        write_deltalake(handle, rows, mode="append", commit_properties=_STRICT, writer_properties=properties)

    def _rewrite(self, contract: Table, handle: DeltaTable, rows: pa.Table, touched: Mapping[str, list[Any]]) -> None:
        """Puts `rows` in place of the touched partitions, or of the whole table if it has none.

        Delta's own merge and delete leave files of string views behind, which Arrow cannot filter.
        """
        properties = upkeep.writer_properties(contract.name)
        write_deltalake(
            handle,
            rows,
            mode="overwrite",
            predicate=filters.predicate(touched),
            commit_properties=_STRICT,
            writer_properties=properties,
        )

    def _handle(self, contract: Table) -> DeltaTable | None:
        with self._lock, self._place.explained():
            try:
                if contract.name in self._handles:
                    self._handles[contract.name].update_incremental()
                else:
                    self._handles[contract.name] = self._open(contract)
            except TableNotFoundError:
                return None
            return self._handles[contract.name]

    def _open(self, contract: Table, version: int | None = None) -> DeltaTable:
        return DeltaTable(self._table_uri(contract), version, storage_options=self._place.delta_options)

    def _create(self, contract: Table) -> DeltaTable:
        try:
            handle = DeltaTable.create(
                self._table_uri(contract),
                contract.schema,
                partition_by=list(contract.partition_by),
                configuration=upkeep.configuration(contract),
                storage_options=self._place.delta_options,
            )
        except DeltaError:
            handle = self._handle(contract)
            if handle is None:
                raise
        return self._handles.setdefault(contract.name, handle)

    def _table_uri(self, contract: Table) -> str:
        return self._place.path("tables", contract.name)

    def _index(self, contract: Table) -> KeyIndex:
        return self._indexes.setdefault(contract.name, KeyIndex(contract.schema, contract.key))

    def _dataset(self, contract: Table, version: int | None = None) -> pads.Dataset:
        with self._lock, self._place.explained():
            handle = self._handle(contract) if version is None else self._pinned(contract, version)
            return pads.dataset(contract.schema.empty_table()) if handle is None else self._snapshot(contract, handle)

    def _snapshot(self, contract: Table, handle: DeltaTable) -> pads.FileSystemDataset:
        dataset = handle.to_pyarrow_dataset(filesystem=self._place.arrow("tables", contract.name))
        assert isinstance(dataset, pads.FileSystemDataset)
        return dataset

    def _pinned(self, contract: Table, version: int) -> DeltaTable | None:
        if version == _NEVER:
            return None
        try:
            return self._open(contract, version)
        except DeltaError as error:
            raise self._no_version(contract, version) from error

    def _no_version(self, contract: Table, version: int | None) -> LakeError:
        named = "the latest version" if version is None else f"version {version}"
        problem = f"Files of {named} of table `{contract.name}` of {self.uri} are not there."
        return LakeError(problem, "Use a version that a policy pins, or the latest.")


_NEVER = -1


def _names(handle: DeltaTable) -> set[str]:
    return {field.name for field in handle.schema().fields}


def _contract(table: str) -> Table:
    if table not in TABLES:
        raise LakeError(f"There is no table `{table}`.", f"The tables are {', '.join(sorted(TABLES))}.")
    return TABLES[table]


def _arrow(contract: Table, rows: Iterable[Row | Mapping[str, Any]] | pa.Table) -> pa.Table:
    if not isinstance(rows, pa.Table):
        return contract.arrow(rows)
    table: pa.Table = rows
    return table.select(contract.schema.names).cast(contract.schema)
