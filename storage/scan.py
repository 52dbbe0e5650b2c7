"""Read a table in batches, and index its keys, so that a row is not written twice.

After an outage of the store, a read continues after the last batch. The index reads only the key columns. It reads each
file once, because files of a Delta table never change, and does not read files that this process wrote. Rows are looked
up by their first key column before the full comparison.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

TOGETHER = 256
"""Maximum number of rows in a batch, pictures included."""


def scan(
    patiently: Callable[[Callable[[], Any]], Any],
    dataset: pads.Dataset,
    columns: Sequence[str],
    condition: pads.Expression | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table version, always in the same order.

    Args:
        patiently: runs a repeatable operation, retrying it while the store is unreachable.
        dataset: the table version.
        columns: names of the columns.
        condition: condition of the rows; all rows if None.
    """
    reading: Iterator[pa.RecordBatch] | None = None
    done = 0

    def following() -> pa.RecordBatch | None:
        nonlocal reading
        if reading is None:
            found = dataset.to_batches(
                columns=list(columns), filter=condition, batch_size=TOGETHER, batch_readahead=1, fragment_readahead=1
            )
            reading = _after(found, done)
        try:
            return next(reading, None)
        except Exception:
            reading = None
            raise

    while (batch := patiently(following)) is not None:
        done += batch.num_rows
        yield batch


def _after(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Skip the first `rows` rows."""
    for batch in batches:
        skipped = min(rows, batch.num_rows)
        rows -= skipped
        yield batch.slice(skipped)


def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows without repeated keys. The last row of each key stays in its position."""
    if rows.group_by(list(key), use_threads=False).aggregate([]).num_rows == rows.num_rows:
        return rows
    places = {identity: place for place, identity in enumerate(_identities(rows, key))}
    return rows.take(sorted(places.values()))


def without(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows whose key is not among the keys of the other rows."""
    there = set(_identities(others, key))
    return rows.filter(pa.array([identity not in there for identity in _identities(rows, key)], pa.bool_()))


class KeyIndex:
    """Keys of one table, by file."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._key = list(key)
        self._schema = pa.schema([schema.field(name) for name in key])
        self._files: dict[str, pa.Table] = {}

    def missing(
        self, files: AbstractSet[str], dataset: Callable[[], pads.FileSystemDataset], rows: pa.Table
    ) -> pa.Table:
        """Return the rows whose key is not in a version of the table.

        Args:
            files: names of the version's files, below the table.
            dataset: returns the version as a data set, to read files that are not indexed yet.
            rows: rows to add.
        """
        self._keep(files)
        if unread := files - self._files.keys():
            version = dataset()
            fragments = {fragment.path: fragment for fragment in version.get_fragments()}
            for name in unread:
                keys = fragments[name].to_table(schema=version.schema, columns=self._key, use_threads=False)
                self._files[name] = keys.cast(self._schema)
        known = pa.concat_tables([self._schema.empty_table(), *self._files.values()])
        near = known.filter(pads.field(self._key[0]).isin(rows[self._key[0]].combine_chunks()))
        return without(rows, near, self._key) if near.num_rows else rows

    def added(self, files: AbstractSet[str], rows: pa.Table) -> None:
        """Record that a new version added these rows. If the version has a single new file, the file is not read
        later."""
        self._keep(files)
        if len(new := files - self._files.keys()) == 1:
            (name,) = new
            self._files[name] = rows.select(self._key)

    def _keep(self, files: AbstractSet[str]) -> None:
        self._files = {name: keys for name, keys in self._files.items() if name in files}


def _identities(rows: pa.Table, key: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in key), strict=True))
