"""Reads and writes memory-mapped Arrow files of rows: written batch by batch, read one row at a time.

Ranks that read the same file share its pages in memory. Neither the writer nor the trainer holds more than the rows in
use.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

Row = TypeVar("Row")
TOGETHER = 1024
"""Rows that are written at once."""


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> set[str]:
    """Writes batches, in order; returns the values of their column `screenshots`, if they have one."""
    shown: set[str] = set()
    with pa.ipc.new_file(path, schema) as file:
        for batch in batches:
            file.write_batch(batch.cast(schema))
            if "screenshots" in schema.names:
                shown.update(batch["screenshots"].flatten().unique().to_pylist())
    return shown


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[Any]) -> set[str]:
    """Writes dataclasses, in order; returns the same value as `write_batches`."""
    coming = iter(rows)
    chunks = iter(lambda: [asdict(row) for row in islice(coming, TOGETHER)], [])
    return write_batches(path, schema, (pa.RecordBatch.from_pylist(chunk, schema) for chunk in chunks))


def mapped(path: Path) -> pa.Table:
    """Maps a file's rows into memory without a copy. Raises OSError or `pyarrow.ArrowInvalid` for an unreadable or
    other file."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


class FileRows(Sequence[Row], Generic[Row]):
    """The rows of a file, in order.

    Args:
        path: path of the file.
        make: makes a row from its columns by name; lists come as tuples.
    """

    def __init__(self, path: Path, make: Callable[..., Row]) -> None:
        self.table, self._make = mapped(path), make

    def __len__(self) -> int:
        return self.table.num_rows

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        (row,) = self.table.slice(range(len(self))[index], 1).to_pylist()
        return self._make(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})
