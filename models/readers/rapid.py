"""RapidOCR: PP-OCR's models on ONNX, offline, on a CPU; reads lines of text with their boxes."""

import io
import logging
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from models.readers.reader import Reader
from schemas.failure import FlywheelError
from schemas.observation import Element

MODULES = ("rapidocr", "onnxruntime")
HEIGHT = 840
"""Pixels that a screen is enlarged to at least: the models were made for larger letters than those of small screens."""
SURE = 0.6
"""Least confidence of a line."""


class RapidReader(Reader):
    """Lines of text; it knows neither kinds nor what can be clicked."""

    name: ClassVar[str] = "rapidocr-3"

    def __init__(self) -> None:
        self.require()
        rapidocr: Any = __import__("rapidocr")
        logging.getLogger("RapidOCR").setLevel(logging.ERROR)
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
        """A line of text each."""
        try:
            picture = Image.open(io.BytesIO(png)).convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise FlywheelError(f"`annotate.reader`: a screenshot is no picture: {error}.") from error
        factor = max(1, -(-HEIGHT // picture.height))
        large = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.BICUBIC)
        found = self._ocr(np.asarray(large)[:, :, ::-1])
        if found is None or found.boxes is None:
            return []
        lines = [
            Element(text.strip(), "text", _box(corners, large.width, large.height), False)
            for corners, text, score in zip(found.boxes, found.txts, found.scores, strict=True)
            if score >= SURE and text.strip()
        ]
        return sorted(lines, key=lambda line: (round(line.box[1], 2), line.box[0]))


def _box(corners: Any, width: int, height: int) -> tuple[float, float, float, float]:
    points = np.clip(np.asarray(corners, dtype=float) / (width, height), 0.0, 1.0)
    (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
    return float(left), float(top), float(right), float(bottom)
