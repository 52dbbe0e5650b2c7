"""Samples and their screenshots, each as a file that the trainer maps into memory."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learning.data.files import FileRows, mapped, write_batches, write_rows
from schemas.failure import FlywheelError
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
        ("positions", pa.list_(pa.int64())),
    ]
)
_SCREENSHOTS = pa.schema([("sha256", _TEXT), ("width", pa.int32()), ("height", pa.int32()), ("png", pa.binary())])
SCREENSHOT_COLUMNS = _SCREENSHOTS.names
"""Columns of the file of screenshots, as the lake's table has them."""


def write_samples(path: Path, samples: Iterable[TrainSample]) -> set[str]:
    """Writes samples, in order; their weights decide when each comes in the training.

    Returns:
        sha256 of the screenshots that they show.
    """
    return write_rows(path, _SAMPLES, samples)


def write_sample_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> set[str]:
    """Writes samples as they come from the lake, each with its `positions` in the training."""
    return write_batches(path, _SAMPLES, batches)


def read_samples(path: Path) -> FileRows[TrainSample]:
    """Opens the samples of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, _sample)


def order_of(samples: Sequence[Any]) -> np.ndarray | None:
    """Lists the sample at each position of the training, (n,); None where the weights decide it.

    Raises:
        FlywheelError: none comes at one of the positions.
    """
    if not isinstance(samples, FileRows) or "positions" not in samples.table.column_names:
        return None
    positions = samples.table["positions"].combine_chunks()
    # by DLPack: `to_numpy` imports pandas, which takes the trainer as long as some steps
    places = np.from_dlpack(positions.flatten()).astype(np.int64, copy=False)
    order = np.full(len(places), -1, dtype=np.int64)
    order[places] = np.from_dlpack(pc.call_function("list_parent_indices", [positions]))
    if (order < 0).any():
        raise FlywheelError(f"No sample comes at position {int(order.argmin())}.", "The lake's rows are incomplete.")
    return order if len(order) else None


def write_screenshots(path: Path, pngs: Mapping[str, bytes]) -> None:
    """Writes screenshots by their sha256."""
    sizes = [_size(png) for png in pngs.values()]
    columns = [list(pngs), [size[0] for size in sizes], [size[1] for size in sizes], list(pngs.values())]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCREENSHOTS, strict=True)]
    write_screenshot_batches(path, [pa.record_batch(arrays, schema=_SCREENSHOTS)])


def write_screenshot_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Writes screenshots as they come from the lake: batches of `SCREENSHOT_COLUMNS`."""
    write_batches(path, _SCREENSHOTS, batches)


def read_screenshots(path: Path) -> "Screenshots":
    """Opens the screenshots of a file; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return Screenshots(path)


class Screenshots(Mapping[str, bytes]):
    """The screenshots of a file: PNG by sha256, each read on access; further columns are ignored."""

    def __init__(self, path: Path) -> None:
        self._table = mapped(path)
        self._places = {digest: place for place, digest in enumerate(self._table["sha256"].to_pylist())}

    def __getitem__(self, digest: str) -> bytes:
        return self._table["png"][self._places[digest]].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def size(self, digest: str) -> tuple[int, int]:
        """Reads width and height in pixels; raises KeyError for a screenshot that is not there."""
        place = self._places[digest]
        return self._table["width"][place].as_py(), self._table["height"][place].as_py()

    def png(self, digest: str) -> bytes:
        """Reads the bytes; raises KeyError for a screenshot that is not there."""
        return self[digest]


def _sample(row: dict[str, Any]) -> TrainSample:
    return TrainSample(
        task_id=row["task_id"],
        screenshots=tuple(row["screenshots"]),
        instruction=row["instruction"],
        history=tuple(Past(**past) for past in row["history"]),
        thought=row["thought"],
        action=row["action"],
        questions=tuple(Question(**question) for question in row["questions"]),
        weight=row["weight"],
        kind=row["kind"] or "step",
    )


def _size(png: bytes) -> tuple[int, int]:
    """Reads width and height from a PNG's header; 0 and 0 if it is none."""
    width, height = struct.unpack(">II", png[16:24]) if png[:4] == b"\x89PNG" and len(png) >= 24 else (0, 0)
    return width, height
