"""Reads and writes screens of rendered pages, from which a base policy is made.

A sample is one screen with everything that the browser knows about it, and the action and the screen before it. The
batches draw questions from it (`learning.engines.tiny.pages`).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from learning.data.files import FileRows, write_rows

LARGEST = (1280, 800)
"""Width and height in pixels of the largest screen of a base, for which its text stack has positions."""
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True, slots=True)
class PageSample:
    """One screen of a page. Texts are canonical JSON as in the table `pages`."""

    page_id: str
    step: int
    split: str
    screenshots: tuple[str, ...]
    """sha256 of the screen before the last action, if there is one, and of the screen."""
    width: int
    height: int
    elements: str
    states: str
    lines: str
    instruction: str
    history: tuple[str, ...]
    """Actions before this screen, oldest first."""
    action: str
    """The solution's action at this screen; empty on the last."""
    change: str
    """Effect of the last action; empty on the first screen."""
    perceived: str
    """JSON list of questions about the whole screen: question, answer, and x and y in [0, 1] or null."""
    positions: tuple[int, ...] = ()
    """Positions in the training; none for a screen of another split than `train`."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PageElement:
    """One visible element; its box is in pixels."""

    name: str
    kind: str
    box: Box
    states: dict[str, bool]


@dataclass(frozen=True, slots=True)
class TextLine:
    """One visible line of text; its box is in pixels."""

    text: str
    box: Box
    font_px: float
    centres: tuple[float, ...]
    """Centre of each character, in pixels from the left."""

    @property
    def middle(self) -> float:
        """Returns the middle of the line, in pixels from the top."""
        return (self.box[1] + self.box[3]) / 2


def elements_of(sample: PageSample) -> list[PageElement]:
    """Reads a sample's elements, with boxes in pixels and their states."""
    states: dict[str, dict[str, object]] = json.loads(sample.states)
    size = (sample.width, sample.height) * 2
    return [
        PageElement(
            name,
            kind,
            tuple(edge * side for edge, side in zip(box, size, strict=True)),
            {key: value for key, value in states.get(str(number), {}).items() if isinstance(value, bool)},
        )
        for number, (name, kind, box, _, _) in enumerate(json.loads(sample.elements))
    ]


def lines_of(sample: PageSample) -> list[TextLine]:
    """Reads a sample's lines of text."""
    return [
        TextLine(text, tuple(box), font_px, tuple(centres)) for text, box, font_px, centres in json.loads(sample.lines)
    ]


_TEXTS = pa.list_(pa.string())
_SCHEMA = pa.schema(
    [
        ("page_id", pa.string()),
        ("step", pa.int32()),
        ("split", pa.string()),
        ("screenshots", _TEXTS),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("elements", pa.string()),
        ("states", pa.string()),
        ("lines", pa.string()),
        ("instruction", pa.string()),
        ("history", _TEXTS),
        ("action", pa.string()),
        ("change", pa.string()),
        ("perceived", pa.string()),
        ("positions", pa.list_(pa.int64())),
        ("weight", pa.float64()),
    ]
)


def write_pages(path: Path, samples: Iterable[PageSample]) -> set[str]:
    """Writes samples, in order; returns the sha256 of their screens."""
    return write_rows(path, _SCHEMA, samples)


def read_pages(path: Path) -> FileRows[PageSample]:
    """Opens the samples of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, PageSample)
