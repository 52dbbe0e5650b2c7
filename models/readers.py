"""Defines screen readers, which find elements in pixels if no page lists them (a desktop, an imported data set).

`annotate.reader` names a reader: `page` for none, `rapidocr`, or `my_package.my_module:MyReader`.

The reader `rapidocr` reads lines of text with their boxes: PP-OCR's models on ONNX, offline, on a CPU. A screen is read
in overlapping tiles at its own resolution, and parts of lines that cross an edge are joined.
"""

import logging
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from common.picture import rgb_of
from schemas.failure import FlywheelError
from schemas.observation import Element
from schemas.registry import Registry

NONE = "page"
"""Name for no reader; elements then come from pages."""


class ScreenReader(ABC):
    """Finds elements in a picture; made without arguments."""

    name: ClassVar[str]
    """Name and version, stored with every reading; a new version reads all screens again."""

    @classmethod
    def require(cls) -> None:
        """Raises FlywheelError if the reader cannot be made; the message names the package to install."""
        return

    @abstractmethod
    def read(self, png: bytes) -> list[Element]:
        """Finds the elements of a PNG from top to bottom, with boxes in [0, 1]; raises FlywheelError if it is no
        picture."""


READERS: Registry[ScreenReader] = Registry("annotate.reader", ScreenReader, {"rapidocr": "models.readers:RapidReader"})


def reader_class(name: str) -> type[ScreenReader] | None:
    """Finds the configured reader's class; None for `page`.

    Raises:
        UsageError: there is no reader of this name.
        FlywheelError: a package that the reader needs is not installed.
    """
    if name == NONE:
        return None
    found = READERS.class_of(name)
    found.require()
    return found


MODULES = ("rapidocr", "onnxruntime")
SIDE = 736
"""Pixels of a tile's side, the size that the detector was made for (`Det.limit_side_len`).

On larger pictures the detector misses lone labels, and RapidOCR shrinks pictures with sides above 2000 pixels.
"""
OVERLAP = 128
"""Pixels that neighbouring tiles share. A line of at most this height is whole in one tile, or its parts are joined."""
QUARTER = (SIDE + OVERLAP) // 2
"""Pixels of a quarter's side. Two quarters with the same overlap cover a tile's side."""
SURE = 0.6
"""Minimum confidence of a line."""
MEASURED = 3840 * 2160
"""Pixels of the largest screen for which the recall was measured (docs/perception.md)."""

Corner = tuple[int, int]
Box = tuple[float, float, float, float]
Line = tuple[str, Box]


class RapidReader(ScreenReader):
    """Reads lines of text, without kinds and clickability."""

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
        """Raises FlywheelError if a package is missing."""
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
            raise FlywheelError(f"`annotate.reader`: a screenshot is not an image: {error}.") from error
        self._warn(picture.size)
        # the models expect larger letters than small screens have
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
        """Warns once about a screen larger than `MEASURED`."""
        if size[0] * size[1] > MEASURED and size not in self._warned:
            self._warned.add(size)
            logging.getLogger(__name__).warning(
                "annotate.reader: a screen of %d x %d pixels is larger than those on which rapidocr was measured: how "
                "much text it misses there is not known (docs/perception.md).",
                *size,
            )

    def _tile(self, picture: Image.Image, corner: Corner, side: int = SIDE) -> list[Line]:
        """Reads the lines of a tile, with boxes in pixels of the whole picture.

        A tile of one colour has no lines. If the detector finds no line in another tile, the quarters of the tile are
        read, since the detector misses a lone small label in a large empty area.
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
        """Runs RapidOCR, with or without its detector; every call sets all options, since RapidOCR keeps the last
        ones."""
        return self._ocr(np.asarray(picture)[:, :, ::-1], use_det=detects, use_cls=False, use_rec=True)

    def _line(self, picture: Image.Image, group: list[Line]) -> Line | None:
        """Returns the line of a group of parts: the part that covers the group, or else a new reading."""
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
"""Share of a group's area above which a part counts as the whole line."""
ROW = 0.5
"""Minimum overlap of two parts of a line, as a share of the smaller height."""


def _corners(size: tuple[int, int], side: int) -> list[Corner]:
    """Lists the upper left corners of evenly spaced tiles of this side that cover a picture."""
    columns, rows = (_starts(length, side) for length in size)
    return [(left, top) for top in rows for left in columns]


def _starts(length: int, side: int) -> list[int]:
    if length <= side:
        return [0]
    count = -(-(length - OVERLAP) // (side - OVERLAP))
    return [round(number * (length - side) / (count - 1)) for number in range(count)]


def _in_order(elements: list[Element]) -> list[Element]:
    """Sorts lines by rows from the top, and within a row from the left. A line belongs to the row whose first line
    spans the line's middle."""
    rows: list[list[Element]] = []
    for element in sorted(elements, key=lambda one: one.box[1]):
        if rows and element.centre[1] < rows[-1][0].box[3]:
            rows[-1].append(element)
        else:
            rows.append([element])
    return [element for row in rows for element in sorted(row, key=lambda one: one.box[0])]


def _padded(tile: Image.Image) -> Image.Image:
    """Pads a tile to sides of at least a quarter.

    The detector enlarges the shorter side to `SIDE`, so it would enlarge a strip too much.
    """
    if min(tile.size) >= QUARTER:
        return tile
    canvas = Image.new("RGB", (max(tile.width, QUARTER), max(tile.height, QUARTER)), tile.getpixel((0, 0)))  # type: ignore[arg-type]
    canvas.paste(tile, (0, 0))
    return canvas


def _together(lines: list[Line]) -> list[list[Line]]:
    """Groups overlapping lines on the same row, which are parts of one line."""
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
