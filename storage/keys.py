"""Which keys a table already holds, so that writing a row again changes nothing.

Only key columns are read, and each file's only once: files of a Delta table never change, so what was read of
them stays true. Rows are looked up by their first key column before they are compared in full.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as pads


def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows without repeated keys; of equal keys the last row stays, at its place."""
    places = {identity: place for place, identity in enumerate(_identities(rows, key))}
    return rows if len(places) == rows.num_rows else rows.take(sorted(places.values()))


def without(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key none of the others has."""
    there = set(_identities(others, key))
    return rows.filter(pa.array([identity not in there for identity in _identities(rows, key)], pa.bool_()))


class KeyIndex:
    """The keys of one table, file by file."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._key = list(key)
        self._schema = pa.schema([schema.field(name) for name in key])
        self._files: dict[str, pa.Table] = {}

    def missing(self, dataset: pads.FileSystemDataset, rows: pa.Table) -> pa.Table:
        """The rows whose key one version of the table does not hold."""
        self._refresh(dataset)
        known = pa.concat_tables([self._schema.empty_table(), *self._files.values()])
        near = known.filter(pads.field(self._key[0]).isin(rows[self._key[0]].combine_chunks()))
        return without(rows, near, self._key) if near.num_rows else rows

    def _refresh(self, dataset: pads.FileSystemDataset) -> None:
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
        self._files = {path: keys for path, keys in self._files.items() if path in fragments}
        for path in fragments.keys() - self._files.keys():
            self._files[path] = _keys(fragments[path], dataset.schema, self._key).cast(self._schema)


def _keys(fragment: pads.Fragment, schema: pa.Schema, key: list[str]) -> pa.Table:
    return fragment.to_table(schema=schema, columns=key, use_threads=False)


def _identities(rows: pa.Table, key: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in key), strict=True))
