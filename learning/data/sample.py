"""Training samples and their screenshots, each kind as a file that the trainer maps into memory.

A sample is one step, as curation selects it from a lake. As in UI-TARS the loss covers this step's thought and action
(and the answers to questions about the same screenshot), never the history.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learning.data.files import FileRows, mapped, write_batches, write_rows
from schemas.failure import FlywheelError


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
    """Centre of the element, in [0, 1] of the screen."""
    y: float


Kind = Literal["step", "naming", "inverse_dynamics", "transition", "perception"]
COMPARING: tuple[Kind, ...] = ("inverse_dynamics", "transition")
"""Kinds that show two screens, before and after an action, and know no instruction."""
PLACE = "{place}"
"""Placeholder in a question about a screen for the place of `action`, as the policy writes it."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One screen, or two to compare, with the answer to learn."""

    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the last screenshots, oldest first, the current one last."""
    instruction: str
    history: tuple[Past, ...] = ()
    """All past steps, oldest first."""
    thought: str = ""
    action: str | None = None
    """Target, canonical JSON; None for a screen that only teaches grounding. For perception, a click on the place that
    is asked about, or None."""
    questions: tuple[Question, ...] = field(default=())
    weight: float = 1.0
    """How often it is drawn, relative to the others; 0 for never."""
    kind: Kind = "step"
    """`step`: the reply to the instruction, or, without an action, places of elements. Of continual training: `naming`,
    the element at a place; `inverse_dynamics`, the action that led from one screen to the next; `transition`, the
    change between them, in `thought`. `perception`: a question about a screen in `instruction`, its answer in
    `thought`."""

    @property
    def asked_at(self) -> str | None:
        """Returns the action whose place replaces `PLACE` in the question; None where the question names no place."""
        return self.action if self.kind == "perception" else None

    @property
    def thinks(self) -> bool:
        """Checks whether its prompt asks for a thought: a sample that holds none teaches to act without."""
        return bool(self.thought)

    def visible_screens(self, history_images: int) -> tuple[str, ...]:
        """Lists the screenshots that are shown where the policy sees so many of the last ones."""
        if self.kind in COMPARING:
            return self.screenshots
        if self.kind == "perception":
            return self.screenshots[-1:]
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
