"""Open, change and read one Delta table of a lake.

No key is written twice. An append reads the keys at version v, and commits the missing rows as version v + 1. Delta
gives each version number to one writer (`max_commit_retries=0`), so a second writer fails, reads the new version and
tries again. A commit is atomic: a process that is killed before its commit changes nothing.
"""

import errno
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from schemas.failure import LakeError
from schemas.table import Table, not_before
from storage import filters, upkeep
from storage.address import Address
from storage.cache import FileCache
from storage.explained import explained
from storage.objects import inside
from storage.patience import T
from storage.protocol import features_named, require_plain
from storage.scan import KeyIndex, without

_STRICT = CommitProperties(max_commit_retries=0)
_ATTEMPTS = 200
_RESERVED = 1_000_000
"""Bytes that must stay free on the disk after a commit, for the log and for concurrent writers."""
_NEWER = "A newer flywheel began to upgrade it: finish with its `flywheel upgrade` and use it, or a new `lake.uri`."


def sizes_of(handle: DeltaTable) -> dict[str, int]:
    """Return the size of each file of a version, by its name below the table. Delta's log has URL-encoded paths."""
    return {unquote(path): size for path, size in _logged(handle).items()}


def _logged(handle: DeltaTable) -> dict[str, int]:
    """Return the size of each file of a version, by its URL-encoded path in the log."""
    added = pa.table(handle.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pydict()
    return dict(zip(added["path"], added["size_bytes"], strict=True))


def _require_inside(paths: Iterable[str], place: str) -> None:
    """Raise LakeError if a path in a table's log leads out of the table's folder."""
    for path in paths:
        try:
            name, before = path, ""
            while name != before:  # some readers decode a path twice
                name, before = unquote(inside(name)), name
        except LakeError as error:
            raise _outside(path, place) from error
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", name):
            raise _outside(path, place)


def _outside(path: str, place: str) -> LakeError:
    problem = f"The log of {place} names the file {path[:200]!r}, which does not lie there."
    return LakeError(problem, "Another program wrote it: nothing is read. Restore the table, or copy the file into it.")


def _committed(handle: DeltaTable) -> datetime:
    """Return the time of the latest commit, which may be newer than the handle's version."""
    commits = [commit.get("timestamp", 0) for commit in handle.history(1)]
    return datetime.fromtimestamp(max(commits, default=0) / 1000, UTC)


def _dataset(handle: DeltaTable, files: FileSystem) -> pads.FileSystemDataset:
    dataset = handle.to_pyarrow_dataset(filesystem=files)
    assert isinstance(dataset, pads.FileSystemDataset)
    return dataset


class StoredTable:
    """A table at a lake's address. The first commit makes the table.

    Methods raise `LakeError` if the storage is unreachable or the disk is full.

    Args:
        contract: schema, key and partitions of the table.
        place: the lake's address.
        lock: lock of the lake, held while Delta's handle is in use, because threads cannot share the handle safely.
        cache: cached copies of the table's files, for a lake on S3.
    """

    def __init__(self, contract: Table, place: Address, lock: threading.RLock, cache: FileCache | None = None) -> None:
        self.contract, self.lock = contract, lock
        self._place, self._cache = place, cache
        self._latest: DeltaTable | None = None
        self._checked, self._files = -1, set[str]()
        """The latest version whose files are known to be inside the table's folder, and the names of its files."""
        self._seen: AbstractSet[str] = frozenset[str]()
        """Paths of these files in the log."""
        self._index = KeyIndex(contract.schema, contract.key)

    def handle(self) -> DeltaTable | None:
        """Return the latest version; None if the table does not exist yet."""
        with self.lock:
            return self._place.patiently(self._refreshed)

    def names(self) -> AbstractSet[str]:
        """Return the names of the latest version's files; empty if the table does not exist yet."""
        with self.lock:
            handle = self.handle()
            return frozenset[str]() if handle is None else self._files_of(handle)

    def at(self, version: int | None) -> DeltaTable | None:
        """Return the handle of a version; of the latest if not given."""
        if version is None:
            return self.handle()
        return self._place.patiently(lambda: self._at(version))

    def version_at(self, moment: datetime) -> int | None:
        """Return the table's version at a point in time; None if the table did not exist yet."""
        handle = self.handle()
        if handle is None:
            return None
        with self.lock:
            history = self._place.patiently(handle.history)
        commits = [(one["timestamp"], one["version"]) for one in history]
        before = [version for stamp, version in commits if stamp <= moment.timestamp() * 1000]
        return max(before, default=None)

    def is_lost(self, version: int) -> bool:
        """Whether a version cannot be read whole, because it never existed or because files of it were removed."""
        if self.handle() is None:
            return True
        try:
            handle = self.at(version)
        except LakeError:
            return True
        assert handle is not None
        there = self._place.patiently(lambda: self._place.store("tables", self.contract.name).sizes())
        with self.lock:
            return not sizes_of(handle).keys() <= there.keys()

    def dataset(self, version: int | None = None, where: filters.Where | None = None) -> pads.Dataset:
        """Return the rows of a version (the latest if not given) as a data set. A table that does not exist has no
        rows.

        Files that `where` excludes are not read.
        """
        with self.lock:
            handle = self.at(version)
            return pads.dataset(self.contract.schema.empty_table()) if handle is None else self.snapshot(handle, where)

    def read(
        self, version: int | None, operation: Callable[[pads.Dataset], T], where: filters.Where | None = None
    ) -> T:
        """Run an operation on `dataset` and return its result. Repeat it if files disappear meanwhile.

        `flywheel forget` replaces the files of a version by files with other names.

        Raises:
            LakeError: files of the version are missing.
        """

        before: set[str] | None = None
        while True:
            try:
                return self._place.patiently(lambda: operation(self.dataset(version, where)))
            except FileNotFoundError as error:
                before = self._names_after_failure(before, version, error)

    def snapshot(self, handle: DeltaTable, where: filters.Where | None = None) -> pads.FileSystemDataset:
        """Return the rows of a handle's version. Files that `where` excludes are not read."""
        name = self.contract.name
        if self._cache is not None:
            copies = _dataset(handle, SubTreeFileSystem(str(self._cache.folder / name), LocalFileSystem()))
            needed = {fragment.path for fragment in copies.get_fragments(filters.expression(where))}
            if self._is_cached(handle, needed):
                return copies
        return self._in_store(handle)

    def files(self, handle: DeltaTable) -> list[str] | None:
        """List the paths of a version's Parquet files on this machine; None if DuckDB cannot read them by path.

        DuckDB turns a parent folder named KEY=VALUE into a column KEY, which hides a column of this name in the file.
        """
        folder = self._uri if self._cache is None else str(self._cache.folder / self.contract.name)
        if "=" in folder or "://" in folder:
            return None
        if self._cache is None:
            return [unquote(address) for address in handle.file_uris()]
        return [f"{folder}/{name}" for name in sizes_of(handle)] if self._is_cached(handle) else None

    def _is_cached(self, handle: DeltaTable, needed: Container[str] | None = None) -> bool:
        assert self._cache is not None
        sizes = sizes_of(handle).items()
        files = {f"{self.contract.name}/{name}": size for name, size in sizes if needed is None or name in needed}
        return self._place.patiently(partial(self._cache.hold, files))

    def _in_store(self, handle: DeltaTable) -> pads.FileSystemDataset:
        return _dataset(handle, self._place.arrow("tables", self.contract.name))

    def append(self, rows: pa.Table) -> int:
        """Add rows whose key does not exist yet, and return their number."""

        def attempt(handle: DeltaTable) -> int:
            version = handle.version()
            missing = self._index.missing(self._files_of(handle), lambda: self._in_store(handle), rows)
            if missing.num_rows:
                self._write(handle, missing, "append")
                if handle.version() == version + 1:
                    self._index.added(self._files_of(handle), missing)
            return missing.num_rows

        return self.change(attempt)

    def upsert(self, rows: pa.Table) -> None:
        """Add rows, and replace existing rows of the same key."""

        def attempt(handle: DeltaTable) -> int:
            touched = filters.partitions(self.contract, rows)
            there = (
                self.snapshot(handle, touched).to_table(filter=filters.expression(touched)).cast(self.contract.schema)
            )
            others = without(there, rows, self.contract.key)
            self.rewrite(handle, pa.concat_tables([others, rows]), touched)
            return rows.num_rows

        self.change(attempt)

    def rewrite(self, handle: DeltaTable, rows: pa.Table, touched: Mapping[str, list[Any]]) -> None:
        """Replace the touched partitions by `rows`; the whole table if it has no partitions.

        Delta's own merge and delete write columns as string views, which Arrow cannot filter.
        """
        self._write(handle, rows, "overwrite", predicate=filters.predicate(touched))

    def widen(self, handle: DeltaTable, rows: pa.RecordBatchReader) -> None:
        """Replace the whole table by rows with the current columns. The old table may lack some columns."""
        partition_by = list(self.contract.partition_by)
        self._write(handle, rows, "overwrite", schema_mode="overwrite", partition_by=partition_by)

    def change(self, attempt: Callable[[DeltaTable], int]) -> int:
        """Run an attempt at a commit and return its result. Repeat it if another writer committed first.

        Raises:
            LakeError: the table has different columns, or too many writers committed first.
        """
        name, uri = self.contract.name, self._place.uri
        before: set[str] | None = None
        with self.lock:
            for turn in range(_ATTEMPTS):
                try:
                    return self._place.patiently(lambda: attempt(self.handle() or self._create()))
                except FileNotFoundError as error:
                    before = self._names_after_failure(before, None, error)
                except CommitFailedError:
                    time.sleep(random.uniform(0.0, min(0.01 * 2**turn, 0.5)))
                except SchemaMismatchError as error:
                    problem = f"Table `{name}` of {uri} has other columns than this flywheel: {error}."
                    raise LakeError(problem, _NEWER) from error
        raise LakeError(f"Table `{name}` of {uri} was busy for {_ATTEMPTS} attempts.", "Run fewer writers at once.")

    def _names_after_failure(self, before: set[str] | None, version: int | None, error: FileNotFoundError) -> set[str]:
        """Return the current file names of a version after one of its files was missing.

        Args:
            before: the result of this method for the previous failure; None for the first failure.
            version: the version; the latest if not given.
            error: the failure.

        Raises:
            LakeError: the names did not change since the previous failure, so reading again cannot help.
        """
        with self.lock:
            self._latest = None
            handle = self.at(version)
            there = set() if handle is None else set(sizes_of(handle))
        if there == before:
            raise self.lost(version) from error
        return there

    def lost(self, version: int | None) -> LakeError:
        """Return the error for a version that never existed, or whose files were removed."""
        named = "the latest version" if version is None else f"version {version}"
        problem = f"Files of {named} of table `{self.contract.name}` of {self._place.uri} are missing."
        return LakeError(problem, "Use a version that a policy pins, or the latest.")

    def _write(
        self,
        handle: DeltaTable,
        rows: pa.Table | pa.RecordBatchReader,
        mode: Literal["append", "overwrite"],
        **how: Any,
    ) -> None:
        if self._place.local:
            self._require_room(rows.nbytes if isinstance(rows, pa.Table) else 0)
        properties = upkeep.writer_properties(self.contract.name)
        with features_named(self._uri):
            write_deltalake(handle, rows, mode=mode, commit_properties=_STRICT, writer_properties=properties, **how)

    def _require_room(self, size: int) -> None:
        """Raise OSError if the disk has no room for `size` bytes, or if writing is not allowed.

        The check comes before the write, because delta-rs panics if a write fails halfway.
        """
        if not os.access(self._uri, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if shutil.disk_usage(self._place.uri).free < size + _RESERVED:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self, version: int | None = None) -> DeltaTable:
        with features_named(self._uri):
            return DeltaTable(self._uri, version, storage_options=self._place.delta_options)

    def _refreshed(self) -> DeltaTable | None:
        try:
            if self._latest is None:
                self._latest, self._checked = self._open(), -1
                not_before(_committed(self._latest))
            elif not self._is_newest(self._latest.version()):
                with features_named(self._uri):
                    self._latest.update_incremental()
            self._files_of(self._latest)
        except TableNotFoundError:
            return None
        except (DeltaError, LakeError):
            self._latest = None  # the handle may be half updated
            raise
        return self._latest

    def _is_newest(self, version: int) -> bool:
        """Whether a local table certainly has no later version: its log has this version's commit, and no next one.

        Delta's own look for commits takes 5 ms. Two file names take 10 microseconds.
        """
        if not self._place.local:
            return False
        log = Path(self._uri, "_delta_log")
        return (log / f"{version:020}.json").exists() and not (log / f"{version + 1:020}.json").exists()

    def _at(self, version: int) -> DeltaTable:
        try:
            with explained(self._place.uri):
                handle = self._open(version)
        except DeltaError as error:
            raise self.lost(version) from error
        require_plain(handle, self._uri)
        _require_inside(_logged(handle), self._uri)
        return handle

    def _files_of(self, latest: DeltaTable) -> AbstractSet[str]:
        """Return the names of the latest version's files."""
        if latest.version() != self._checked:
            require_plain(latest, self._uri)
            there = _logged(latest)
            _require_inside(there.keys() - self._seen, self._uri)
            self._files, self._seen = {unquote(path) for path in there}, there.keys()
            self._checked = latest.version()
        return self._files

    def _create(self) -> DeltaTable:
        try:
            self._latest = DeltaTable.create(
                self._uri,
                self.contract.schema,
                partition_by=list(self.contract.partition_by),
                configuration=upkeep.configuration(self.contract),
                storage_options=self._place.delta_options,
            )
        except DeltaError:
            if self.handle() is None:
                raise
        assert self._latest is not None
        return self._latest

    @property
    def _uri(self) -> str:
        return self._place.path("tables", self.contract.name)
