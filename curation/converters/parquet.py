# pyright: basic
# pyarrow has no types of its own
"""Parquet with pictures in it, as Hugging Face's `datasets` write it: a struct of bytes and a path, and the features in
the file's metadata, so that its readers see pictures."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.converters.exchanged import Picture, Place, Refused
from curation.converters.files import MOST_BYTES, Source, picture_of

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TOGETHER = 4
"""Rows that are in memory together."""


def write_rows(path: Path, schema: Any, rows: Iterable[Mapping[str, Any]], pictures: Mapping[str, Any]) -> int:
    """Writes rows, a few at a time, and returns how many.

    Args:
        path: the file.
        schema: its columns.
        rows: by column.
        pictures: the columns that hold pictures, as features of `datasets`.
    """
    features = {name: pictures.get(name) or _feature(schema.field(name).type) for name in schema.names}
    described: Any = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    count = 0
    with pq.ParquetWriter(path, described) as writer:
        for row in rows:
            writer.write_table(pa.Table.from_pylist([dict(row)], schema=described))
            count += 1
    return count


def _feature(kind: Any) -> Any:
    if pa.types.is_list(kind):
        return [_feature(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


def image_of(picture: Picture) -> dict[str, Any]:
    """A picture as a cell."""
    return {"bytes": picture.png, "path": f"{picture.sha256}.png"}


def read_rows(source: Source, file: Path) -> Iterator[tuple[Place, Any]]:
    """The rows of a file with their places, a few at a time; a `Refused` where it cannot be read on."""
    number = 0
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(TOGETHER):
                for row in batch.to_pylist():
                    number += 1
                    yield Place(source.named(file), number), row
    except (pa.ArrowException, OSError) as error:
        place = Place(source.named(file), number + 1)
        yield place, Refused(place, "", f"no Parquet: {str(error)[:200]}")


def rows_of_any(source: Source) -> Iterator[tuple[Place, Any]]:
    """The rows of all Parquet files and lines of JSON of a source."""
    for file in source.files(".parquet", ".jsonl"):
        yield from read_rows(source, file) if file.suffix == ".parquet" else source.lines(file)


def picture_in(cell: Any, source: Source, place: Place, field: str) -> Picture:
    """The picture of a cell: bytes, or a name below the source's folder; raises Refused where there is none."""
    content = cell.get("bytes") if isinstance(cell, dict) else None
    name = cell.get("path") if isinstance(cell, dict) else cell
    if isinstance(content, bytes):
        if len(content) > MOST_BYTES:
            raise Refused(place, field, f"a picture of more than {MOST_BYTES:,} bytes")
        return picture_of(content, place, field, name if isinstance(name, str) else "")
    if not isinstance(name, str):
        raise Refused(place, field, "neither the bytes nor the name of a picture")
    return source.picture(name, place, field)


def json_of(value: Any) -> str:
    """JSON as a column's text."""
    return json.dumps(value, sort_keys=True)
