"""RapidOCR: PP-OCR's models on ONNX, offline, on a CPU; reads lines of text with their boxes.

A screen is read in overlapping tiles at its own resolution, and lines that cross an edge are put together.
"""

import logging
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from common.picture import rgb_of
from models.readers.reader import ScreenReader
from schemas.failure import FlywheelError
from schemas.observation import Element

MODULES = ("rapidocr", "onnxruntime")
SIDE = 736
"""Pixels of a tile's side, the size that the detector was made for (`Det.limit_side_len`).

On a larger picture it misses lone labels, and RapidOCR shrinks one of more than 2000 pixels.
"""
OVERLAP = 128
"""Pixels that neighbouring tiles share: a line of at most this height is whole in one of them, or is put together."""
QUARTER = (SIDE + OVERLAP) // 2
"""Pixels of a quarter's side: two of them, which share as much, are a tile's."""
SURE = 0.6
"""Minimum confidence of a line."""
MEASURED = 3840 * 2160
"""Pixels of the largest screen whose recall is known (docs/perception.md)."""

Corner = tuple[int, int]
Box = tuple[float, float, float, float]
Line = tuple[str, Box]


class RapidReader(ScreenReader):
    """Reads lines of text; it knows neither kinds nor clickability."""

    name: ClassVar[str] = "rapidocr-3-tiles"

    def __init__(self) -> None:
        self.require()
        rapidocr: Any = __import__("rapidocr")
        logging.getLogger("RapidOCR").setLevel(logging.ERROR)
        self._warned = set[tuple[int, int]]()
        self._ocr = rapidocr.RapidOCR(
            params={
                "Global.log_level": "error",
                "Global.use_cls": False,
                "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )

    @classmethod
    def require(cls) -> None:
        """Raises FlywheelError where a package is missing."""
        missing = [module for module in MODULES if find_spec(module) is None]
        if missing:
            raise FlywheelError(
                f"`annotate.reader`: {' and '.join(missing)} is not installed.",
                "Install it: pip install 'flywheel[ocr]'; or set annotate.reader=page.",
            )

    def read(self, png: bytes) -> list[Element]:
        """Reads one element per line of text."""
        try:
            picture = rgb_of(png)
        except (UnidentifiedImageError, OSError) as error:
            raise FlywheelError(f"`annotate.reader`: a screenshot is no picture: {error}.") from error
        self._warn(picture.size)
        # the models were made for larger letters than those of small screens
        factor = max(1, SIDE // max(picture.size))
        large = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.BICUBIC)
        found = [line for corner in _corners(large.size, SIDE) for line in self._tile(large, corner)]
        lines = [line for group in _together(found) if (line := self._line(large, group)) is not None]
        width, height = large.size
        elements = [
            Element(text, "text", (box[0] / width, box[1] / height, box[2] / width, box[3] / height), False)
            for text, box in lines
        ]
        return _in_order(elements)

    def _warn(self, size: tuple[int, int]) -> None:
        """Warns once of a size that is larger than those whose recall was measured."""
        if size[0] * size[1] > MEASURED and size not in self._warned:
            self._warned.add(size)
            logging.getLogger(__name__).warning(
                "annotate.reader: a screen of %d x %d pixels is larger than those on which rapidocr was measured: how "
                "much text it misses there is not known (docs/perception.md).",
                *size,
            )

    def _tile(self, picture: Image.Image, corner: Corner, side: int = SIDE) -> list[Line]:
        """Reads the lines of a tile, their boxes in pixels of the whole picture.

        A tile of one colour holds none. If the detector finds none in another tile, its quarters are read: the detector
        misses a lone small label in much empty space.
        """
        left, top = corner
        tile = picture.crop((left, top, min(left + side, picture.width), min(top + side, picture.height)))
        if all(low == high for low, high in tile.getextrema()):  # type: ignore[misc]
            return []
        found = self._steps(_padded(tile), detects=True)
        if found is not None and found.boxes is not None:
            return [
                (text.strip(), _box(corners, tile.size, corner))
                for corners, text, score in zip(found.boxes, found.txts, found.scores, strict=True)
                if score >= SURE and text.strip()
            ]
        quarters = _corners(tile.size, QUARTER) if side > QUARTER < max(tile.size) else []
        return [line for across, down in quarters for line in self._tile(picture, (left + across, top + down), QUARTER)]

    def _steps(self, picture: Image.Image, detects: bool) -> Any:
        """Runs RapidOCR, with or without its detector; every call names its steps, since RapidOCR keeps the last."""
        return self._ocr(np.asarray(picture)[:, :, ::-1], use_det=detects, use_cls=False, use_rec=True)

    def _line(self, picture: Image.Image, group: list[Line]) -> Line | None:
        """Returns the line of a group of parts: one that covers the group, else a new reading."""
        whole = _around([box for _, box in group])
        text, box = max(group, key=lambda line: _area(line[1]))
        if _area(box) >= WHOLE * _area(whole):
            return text, box
        left, top, right, bottom = whole
        cut = picture.crop((int(left), int(top), int(right) + 1, int(bottom) + 1))
        found = self._steps(cut, detects=False)
        if found is None or not found.txts or found.scores[0] < SURE or not found.txts[0].strip():
            return text, box
        return found.txts[0].strip(), whole


WHOLE = 0.9
"""Share of a group's area above which one of its lines has all of it."""
ROW = 0.5
"""Share of the lower one's height that two parts of a line have in common."""


def _corners(size: tuple[int, int], side: int) -> list[Corner]:
    """Lists the upper left corners of the tiles of this side that cover a picture, evenly spaced."""
    columns, rows = (_starts(length, side) for length in size)
    return [(left, top) for top in rows for left in columns]


def _starts(length: int, side: int) -> list[int]:
    if length <= side:
        return [0]
    count = -(-(length - OVERLAP) // (side - OVERLAP))
    return [round(number * (length - side) / (count - 1)) for number in range(count)]


def _in_order(elements: list[Element]) -> list[Element]:
    """Sorts row by row from the top, each from the left; a line joins the row whose first line spans its middle."""
    rows: list[list[Element]] = []
    for element in sorted(elements, key=lambda one: one.box[1]):
        if rows and element.centre[1] < rows[-1][0].box[3]:
            rows[-1].append(element)
        else:
            rows.append([element])
    return [element for row in rows for element in sorted(row, key=lambda one: one.box[0])]


def _padded(tile: Image.Image) -> Image.Image:
    """Pads a tile to sides of at least a quarter.

    The detector enlarges the shorter side to `SIDE`, and a strip far too much.
    """
    if min(tile.size) >= QUARTER:
        return tile
    canvas = Image.new("RGB", (max(tile.width, QUARTER), max(tile.height, QUARTER)), tile.getpixel((0, 0)))  # type: ignore[arg-type]
    canvas.paste(tile, (0, 0))
    return canvas


def _together(lines: list[Line]) -> list[list[Line]]:
    """Groups lines that are parts of one: on the same row, and overlapping."""
    groups: list[list[Line]] = []
    for line in lines:
        its = [group for group in groups if any(_same(line[1], other) for _, other in group)]
        groups = [group for group in groups if group not in its] + [[line, *(one for group in its for one in group)]]
    return groups


def _same(one: Box, other: Box) -> bool:
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return across > 0 and down > ROW * min(one[3] - one[1], other[3] - other[1])


def _around(boxes: list[Box]) -> Box:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _box(corners: Any, size: tuple[int, int], at: Corner) -> Box:
    """Computes a line's box in pixels of the picture, from its corners in a tile."""
    points = np.clip(np.asarray(corners, dtype=float), 0.0, size) + at
    (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
    return float(left), float(top), float(right), float(bottom)
