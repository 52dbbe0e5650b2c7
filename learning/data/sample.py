"""Reads and writes training samples, preferences and screenshots, as files that the trainer maps into memory.

A sample is one step that curation selected from a lake. As in UI-TARS, the loss covers this step's thought and action,
and answers to questions about the same screenshot, but never the history.

A preference is a context, the preferred reply and the rejected reply.
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
from schemas.context import ContextRule
from schemas.failure import FlywheelError


@dataclass(frozen=True, slots=True)
class Past:
    """One step of the history."""

    thought: str
    actions: tuple[str, ...]
    """Canonical JSON of each action of the reply, in order."""
    error: str = ""
    """Reason why an action of the reply was not performed; empty if all were performed."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question for the place of the element with this name."""

    name: str
    x: float
    """Centre of the element, in [0, 1] of the screen."""
    y: float


Kind = Literal["step", "naming", "inverse_dynamics", "transition", "perception", "video"]
COMPARING: tuple[Kind, ...] = ("inverse_dynamics", "transition")
"""Kinds with two screens, before and after an action, and without an instruction."""
PLACE = "{place}"
"""Placeholder in a question about a screen for the place of its click in the policy's notation."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """A screen, or two screens to compare, with the answer to learn."""

    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the last screenshots, oldest first; the current one is the last."""
    instruction: str
    history: tuple[Past, ...] = ()
    """All past steps, oldest first."""
    thought: str = ""
    actions: tuple[str, ...] = ()
    """Target: canonical JSON of each action of the reply, in order; empty for a screen that only teaches grounding. For
    perception, a click on the place in question, or empty."""
    questions: tuple[Question, ...] = field(default=())
    weight: float = 1.0
    """Relative frequency in the training; 0 for never."""
    kind: Kind = "step"
    """`step`: the reply to the instruction or, without an action, places of elements. `naming`, for continual training:
    the element at a place. `inverse_dynamics`, for continual training: the action between two screens. `transition`,
    for continual training: the change between two screens, in `thought`. `perception`: a question about a screen, in
    `instruction`, with its answer in `thought`. `video`: a question about the screens as a video, likewise."""
    times: tuple[float, ...] = ()
    """`video`: seconds from the video's beginning at which each screenshot appears; the first is 0."""
    seconds: float = 0.0
    """`video`: duration."""
    rate: float = 0.0
    """`video`: frames per second, from which the model's processor samples."""

    @property
    def asked_at(self) -> str | None:
        """Returns the action whose place replaces `PLACE` in the question; None if the question names no place."""
        return self.actions[0] if self.kind == "perception" and self.actions else None

    @property
    def thinks(self) -> bool:
        """Checks whether the sample's prompt asks for a thought; a sample without a thought teaches acting without
        one."""
        return bool(self.thought)

    def visible_screens(self, rule: ContextRule) -> tuple[str, ...]:
        """Lists the last screenshots, which the policy sees."""
        if self.kind in COMPARING or self.kind == "video":
            return self.screenshots
        if self.kind == "perception":
            return self.screenshots[-1:]
        return self.screenshots[-rule.shown(len(self.history) + 1) if self.actions else -1 :]


_TEXT = pa.string()
_SAMPLES = pa.schema(
    [
        ("task_id", _TEXT),
        ("screenshots", pa.list_(_TEXT)),
        ("instruction", _TEXT),
        ("history", pa.list_(pa.struct([("thought", _TEXT), ("actions", pa.list_(_TEXT)), ("error", _TEXT)]))),
        ("thought", _TEXT),
        ("actions", pa.list_(_TEXT)),
        ("questions", pa.list_(pa.struct([("name", _TEXT), ("x", pa.float32()), ("y", pa.float32())]))),
        ("weight", pa.float64()),
        ("kind", _TEXT),
        ("times", pa.list_(pa.float64())),
        ("seconds", pa.float64()),
        ("rate", pa.float64()),
        ("positions", pa.list_(pa.int64())),
    ]
)
_SCREENSHOTS = pa.schema([("sha256", _TEXT), ("width", pa.int32()), ("height", pa.int32()), ("png", pa.binary())])
SCREENSHOT_COLUMNS = _SCREENSHOTS.names
"""Columns of the file of screenshots, as in the lake's table."""


def write_samples(path: Path, samples: Iterable[TrainSample]) -> set[str]:
    """Writes samples, in order; the weights decide the positions of each sample in the training.

    Returns:
        sha256 of the samples' screenshots.
    """
    return write_rows(path, _SAMPLES, samples)


def write_sample_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> set[str]:
    """Writes batches of samples from the lake, each sample with its `positions` in the training; columns of videos may
    be missing."""
    return write_batches(path, _SAMPLES, map(_with_columns, batches))


def _with_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns of the file, with nulls for missing ones."""
    there = batch.schema.names
    columns = [batch[one.name] if one.name in there else pa.nulls(batch.num_rows, one.type) for one in _SAMPLES]
    return pa.record_batch(columns, names=_SAMPLES.names)


def read_samples(path: Path) -> FileRows[TrainSample]:
    """Opens the samples of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, _sample)


def at_once(samples: Sequence[Any]) -> list[int | None]:
    """Lists the first position of each sample in the training; None for a sample without positions.

    Only the replies of a slice have the same positions (`learning.data.slices`).
    """
    if not isinstance(samples, FileRows) or "positions" not in samples.table.column_names:
        return [None] * len(samples)
    return [held[0] if held else None for held in samples.table["positions"].to_pylist()]


def order_of(samples: Sequence[Any]) -> np.ndarray | None:
    """Lists the sample at each position of the training, (n,); None if the weights decide it.

    Of a slice, whose replies have the same positions, it lists the first reply.

    Raises:
        FlywheelError: a position has no sample.
    """
    if not isinstance(samples, FileRows) or "positions" not in samples.table.column_names:
        return None
    positions = samples.table["positions"].combine_chunks()
    # DLPack is used because `to_numpy` imports pandas, which takes as long as some training steps
    places = np.from_dlpack(positions.flatten()).astype(np.int64, copy=False)
    order = np.full(int(places.max()) + 1 if len(places) else 0, -1, dtype=np.int64)
    order[places[::-1]] = np.from_dlpack(pc.call_function("list_parent_indices", [positions]))[::-1]
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
    """Writes batches of screenshots from the lake, with the columns `SCREENSHOT_COLUMNS`."""
    write_batches(path, _SCREENSHOTS, batches)


def read_screenshots(path: Path) -> "Screenshots":
    """Opens the screenshots of a file; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return Screenshots(path)


class Screenshots(Mapping[str, bytes]):
    """The screenshots of a file: PNG by sha256, read on access; additional columns are ignored."""

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
        """Reads width and height in pixels; raises KeyError for an unknown screenshot."""
        place = self._places[digest]
        return self._table["width"][place].as_py(), self._table["height"][place].as_py()

    def png(self, digest: str) -> bytes:
        """Reads the PNG's bytes; raises KeyError for an unknown screenshot."""
        return self[digest]


def _sample(
    history: tuple[dict[str, Any], ...],
    questions: tuple[dict[str, Any], ...],
    kind: Kind | None,
    positions: object = None,
    times: tuple[float, ...] | None = None,
    seconds: float | None = None,
    rate: float | None = None,
    **others: Any,
) -> TrainSample:
    past = tuple(Past(one["thought"], tuple(one["actions"]), one["error"] or "") for one in history)
    asked = tuple(Question(**one) for one in questions)
    shown = {"times": times or (), "seconds": seconds or 0.0, "rate": rate or 0.0}
    return TrainSample(**others, **shown, history=past, questions=asked, kind=kind or "step")


def _size(png: bytes) -> tuple[int, int]:
    """Reads width and height from a PNG's header; 0 and 0 if it is no PNG."""
    width, height = struct.unpack(">II", png[16:24]) if png[:4] == b"\x89PNG" and len(png) >= 24 else (0, 0)
    return width, height


@dataclass(frozen=True, slots=True)
class Preference:
    """Two replies to one context; all replies are in the notation of the policy's family."""

    pair_id: str
    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the prompt's screenshots, oldest first; the current one is the last."""
    instruction: str
    past_replies: tuple[str, ...]
    """Replies of all past steps, oldest first."""
    chosen: str
    rejected: str
    weight: float = 1.0
    past_errors: tuple[str, ...] = ()
    """Reason why an action of each past reply was not performed, or an empty text; empty if all were performed."""


_SCHEMA = pa.schema(
    [
        ("pair_id", pa.string()),
        ("task_id", pa.string()),
        ("screenshots", pa.list_(pa.string())),
        ("instruction", pa.string()),
        ("past_replies", pa.list_(pa.string())),
        ("chosen", pa.string()),
        ("rejected", pa.string()),
        ("weight", pa.float64()),
        ("past_errors", pa.list_(pa.string())),
    ]
)


def write_preferences(path: Path, preferences: Iterable[Preference]) -> set[str]:
    """Writes preferences, in order; returns the sha256 of their screenshots."""
    return write_rows(path, _SCHEMA, preferences)


def read_preferences(path: Path) -> FileRows[Preference]:
    """Opens the preferences of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, Preference)
