# pyright: basic
# pyarrow has no types of its own
"""Read and write Parquet with embedded pictures, in the form of Hugging Face's `datasets`.

A picture is a struct of bytes and a path, and the file's metadata has the features, so that readers recognise pictures.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from common.text import strict_json
from curation.converters.exchanged import Picture, RecordPlace, RecordRefused
from curation.converters.files import BINARY, MOST_BYTES, ImportSource, Target, binary_kind, picture_of
from curation.converters.search import JSON_LINES

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TOGETHER = 4
"""Number of rows in memory together."""
GROUP_ROWS, GROUP_BYTES = 100, 32 * 10**6
"""Maximum rows and about the maximum bytes of a row group. The Hub's viewer reads whole groups, up to 300 MB."""
SHARD_BYTES = 300 * 10**6
"""About the maximum bytes of a file of `RowShards`; the Hub recommends files below 500 MB."""


class RowFile:
    """A file for rows, one at a time; used as a context.

    Args:
        target: the export's folder.
        name: name of the file, which is created with its first row.
        schema: columns of the file.
        pictures: columns with pictures, as features of `datasets`.
    """

    def __init__(self, target: Target, name: str, schema: Any, pictures: Mapping[str, Any]) -> None:
        self._schema: Any = with_features(schema, pictures)
        self._target, self._name = target, name
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    @property
    def there(self) -> bool:
        """Whether the file exists."""
        return self._writer is not None

    def begun(self) -> "RowFile":
        """Create the file if needed, and return it."""
        self._writer = self._writer or pq.ParquetWriter(self._target.path(self._name), self._schema)
        return self

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a row, by column."""
        self.begun()
        assert self._writer is not None
        self._writer.write_table(pa.Table.from_pylist([dict(row)], schema=self._schema))


class RowShards:
    """Files for rows, with one schema and in row groups that the Hub's viewer reads; used as a context.

    Args:
        target: the export's folder.
        pattern: name of each file, with `{number}`; files are created when they are needed.
        schema: columns of the files.
        pictures: columns with pictures, as features of `datasets`.
        most_rows: maximum rows of a file; not limited if not given.
    """

    def __init__(
        self, target: Target, pattern: str, schema: Any, pictures: Mapping[str, Any], most_rows: int | None = None
    ) -> None:
        self._schema: Any = with_features(schema, pictures)
        self._target, self._pattern, self._most_rows = target, pattern, most_rows
        self._writer: pq.ParquetWriter | None = None
        self._held: list[dict[str, Any]] = []
        self._held_bytes = self._shard_bytes = self._shard_rows = 0
        self.files: list[Path] = []
        """The files, in order."""

    def __enter__(self) -> "RowShards":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self._end()

    def write(self, row: Mapping[str, Any], size: int) -> None:
        """Write a row, by column, whose pictures have about `size` bytes."""
        self._held.append(dict(row))
        self._held_bytes += size
        full = len(self._held) + self._shard_rows == self._most_rows
        if full or len(self._held) >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._flush()
        if full or self._shard_bytes >= SHARD_BYTES:
            self._end()

    def _flush(self) -> None:
        """Write the held rows as one row group."""
        if not self._held:
            return
        if self._writer is None:
            self.files.append(self._target.path(self._pattern.format(number=len(self.files))))
            self._writer = pq.ParquetWriter(self.files[-1], self._schema, write_page_index=True)
        self._writer.write_table(pa.Table.from_pylist(self._held, schema=self._schema))
        self._shard_bytes += self._held_bytes
        self._shard_rows += len(self._held)
        self._held, self._held_bytes = [], 0

    def _end(self) -> None:
        """Close the current file."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._shard_bytes, self._shard_rows = None, 0, 0


def with_features(schema: Any, pictures: Mapping[str, Any]) -> Any:
    """Return a schema with the features of `datasets` in its metadata."""
    features = {name: pictures.get(name) or _feature(schema.field(name).type) for name in schema.names}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def _feature(kind: Any) -> Any:
    if pa.types.is_list(kind):
        return [_feature(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


def image_of(picture: Picture) -> dict[str, Any]:
    """Return a picture as a cell."""
    return {"bytes": picture.png, "path": f"{picture.sha256}.png"}


def read_rows(source: ImportSource, file: Path) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield the rows of a file with their places, a few at a time, or a `RecordRefused` if the file is damaged."""
    number = 0
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(TOGETHER):
                for row in batch.to_pylist():
                    number += 1
                    yield RecordPlace(source.named(file), number, "row"), row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        place = RecordPlace(source.named(file), number + 1, "row")
        yield place, RecordRefused(place, "", f"no Parquet: {_flaw(file, error)}")


def _flaw(file: Path, error: Exception) -> str:
    """Return why a file is no Parquet, and the fix."""
    if isinstance(error, OSError):
        return str(error)[:200]
    kind = binary_kind(file)
    with file.open("rb") as content:
        begin = content.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begin in (b"{", b"["):
        kind = "JSON; name it *.jsonl"
    if kind == BINARY[b"PAR1"] or not kind:
        return f"{str(error)[:200].rstrip('. ')}; write the file again, or name the file of the records"
    return f"it is {kind}"


def rows_of_any(source: ImportSource) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield the rows of all Parquet files and the records of all JSON files of a source."""
    for file in source.files(".parquet", *JSON_LINES):
        yield from read_rows(source, file) if file.suffix.lower() == ".parquet" else source.records(file)


def name_of(cell: Any) -> str | None:
    """Return the name of a cell's picture; None if it has none."""
    name = cell.get("path") if isinstance(cell, dict) else cell
    return name if isinstance(name, str) else None


def picture_in(cell: Any, source: ImportSource, place: RecordPlace, field: str) -> Picture:
    """Return a cell's picture, from bytes or a name below the source's folder; raise RecordRefused if there is none."""
    content = cell.get("bytes") if isinstance(cell, dict) else None
    name = name_of(cell)
    if isinstance(content, bytes):
        if len(content) > MOST_BYTES:
            raise RecordRefused(place, field, f"an image of more than {MOST_BYTES:,} bytes")
        return picture_of(content, place, field, name or "")
    if name is None:
        raise RecordRefused(place, field, "neither the bytes nor the name of an image")
    return source.picture(name, place, field)


def json_of(value: Any) -> str:
    """Return JSON for a column of text."""
    return strict_json(value, sort_keys=True)
