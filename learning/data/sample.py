"""What training is handed: samples and the screenshots they name, as two Parquet files that another process reads."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.sample import Past, Question, TrainSample

_TEXT = pa.string()
_SAMPLES = pa.schema(
    [
        ("task_id", _TEXT),
        ("screenshots", pa.list_(_TEXT)),
        ("instruction", _TEXT),
        ("history", pa.list_(pa.struct([("thought", _TEXT), ("action", _TEXT)]))),
        ("thought", _TEXT),
        ("action", _TEXT),
        ("questions", pa.list_(pa.struct([("name", _TEXT), ("x", pa.float32()), ("y", pa.float32())]))),
        ("weight", pa.float64()),
        ("kind", _TEXT),
    ]
)
_SCREENSHOTS = pa.schema([("sha256", _TEXT), ("width", pa.int32()), ("height", pa.int32()), ("png", pa.binary())])
_TOGETHER = 32
"""Screenshots that are read at once."""


def write_samples(path: Path, samples: Iterable[TrainSample]) -> None:
    """Writes samples, in order."""
    pq.write_table(pa.Table.from_pylist([asdict(sample) for sample in samples], _SAMPLES), path)


def read_samples(path: Path) -> list[TrainSample]:
    """The samples of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    rows = pq.read_table(path, schema=_SAMPLES).to_pylist()
    return [
        TrainSample(
            **{
                **row,
                "kind": row["kind"] or "step",
                "screenshots": tuple(row["screenshots"]),
                "history": tuple(Past(**past) for past in row["history"]),
                "questions": tuple(Question(**question) for question in row["questions"]),
            }
        )
        for row in rows
    ]


def write_screenshots(path: Path, pngs: Mapping[str, bytes]) -> None:
    """Writes screenshots by their sha256."""
    sizes = [_size(png) for png in pngs.values()]
    columns = [list(pngs), [size[0] for size in sizes], [size[1] for size in sizes], list(pngs.values())]
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _SCREENSHOTS, strict=True)], schema=_SCREENSHOTS
    )
    pq.write_table(table, path, compression="none", row_group_size=_TOGETHER)


def read_screenshots(path: Path) -> dict[str, bytes]:
    """PNG by sha256; further columns of the file are left alone."""
    table = pq.read_table(path, columns=["sha256", "png"])
    return dict(zip(table["sha256"].to_pylist(), table["png"].to_pylist(), strict=True))


class Screenshots:
    """The screenshots of a file, their sizes known at once, their bytes read where they are asked for."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path, memory_map=True)
        index = self._file.read(columns=["sha256", "width", "height"])
        columns = (index[name].to_pylist() for name in ("sha256", "width", "height"))
        self._sizes = {digest: (width, height) for digest, width, height in zip(*columns, strict=True)}
        self._groups: dict[str, int] = {}
        rows = iter(self._sizes)
        for group in range(self._file.num_row_groups):
            self._groups.update((next(rows), group) for _ in range(self._file.metadata.row_group(group).num_rows))
        self._read = lru_cache(maxsize=8)(self._group)

    def size(self, digest: str) -> tuple[int, int]:
        """Width and height in pixels; raises KeyError for a screenshot that is not there."""
        return self._sizes[digest]

    def png(self, digest: str) -> bytes:
        """The bytes; raises KeyError for a screenshot that is not there."""
        return self._read(self._groups[digest])[digest]

    def _group(self, group: int) -> dict[str, bytes]:
        table = self._file.read_row_group(group, columns=["sha256", "png"])
        return dict(zip(table["sha256"].to_pylist(), table["png"].to_pylist(), strict=True))


def _size(png: bytes) -> tuple[int, int]:
    """Width and height from a PNG's header; 0 and 0 if it is none."""
    width, height = struct.unpack(">II", png[16:24]) if png[:4] == b"\x89PNG" and len(png) >= 24 else (0, 0)
    return width, height
