"""What training is handed: samples and the screenshots they name, as two Parquet files that another process reads.

One sample is one step, as in UI-TARS: the loss covers this step's thought and action (and the answers to questions
about the same screenshot), never the history.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One screen with what should be said about it."""

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
    ]
)
_SCREENSHOTS = pa.schema([("sha256", _TEXT), ("png", pa.binary())])


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
                "screenshots": tuple(row["screenshots"]),
                "history": tuple(Past(**past) for past in row["history"]),
                "questions": tuple(Question(**question) for question in row["questions"]),
            }
        )
        for row in rows
    ]


def write_screenshots(path: Path, pngs: Mapping[str, bytes]) -> None:
    """Writes screenshots by their sha256."""
    table = pa.Table.from_arrays(
        [pa.array(pngs.keys(), _TEXT), pa.array(pngs.values(), pa.binary())], schema=_SCREENSHOTS
    )
    pq.write_table(table, path, compression="none")


def read_screenshots(path: Path) -> dict[str, bytes]:
    """PNG by sha256; further columns of the file are left alone."""
    table = pq.read_table(path, columns=["sha256", "png"])
    return dict(zip(table["sha256"].to_pylist(), table["png"].to_pylist(), strict=True))
