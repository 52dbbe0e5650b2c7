"""What training is handed: samples and the screenshots they name, as two Parquet files that another process reads.

One sample is one step, as in UI-TARS: the loss covers this step's thought and action (and the answers to questions
about the same screenshot), never the history.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Past:
    """One step of the history."""

    thought: str
    action: str
    """Canonical JSON."""


@dataclass(frozen=True, slots=True)
class Question:
    """A grounding question: where is the element of this name?"""

    name: str
    x: float
    """Its centre, in [0, 1] of the screen."""
    y: float


Kind = Literal["step", "naming", "inverse_dynamics", "transition"]
COMPARING: tuple[Kind, ...] = ("inverse_dynamics", "transition")
"""Kinds that show two screens, before and after an action, and know no instruction."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One screen, or two to compare, with what should be said about it."""

    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the last screenshots, oldest first, the current one last."""
    instruction: str
    history: tuple[Past, ...] = ()
    """All past steps, oldest first."""
    thought: str = ""
    action: str | None = None
    """Target, canonical JSON; None for a screen that only teaches grounding."""
    questions: tuple[Question, ...] = field(default=())
    weight: float = 1.0
    """How often it is drawn, relative to the others; 0 for never."""
    kind: Kind = "step"
    """`step`: the reply to the instruction, or, without an action, where things are. Of continual training: `naming`,
    what is at a place; `inverse_dynamics`, the action that led from one screen to the next; `transition`, what changed
    between them, in `thought`."""

    def shown(self, history_images: int) -> tuple[str, ...]:
        """The screenshots that are shown where the policy sees so many of the last ones."""
        if self.kind in COMPARING:
            return self.screenshots
        return self.screenshots[-history_images if self.action is not None else -1 :]


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
