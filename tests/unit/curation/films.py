"""Small video files that tests make with PyAV."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from curation.video import write_video

WIDE, HIGH = 320, 240
BOXES = {"blue": (20, 20, 80, 50), "green": (200, 150, 300, 200), "red": (10, 180, 60, 230)}
"""Place of each colour's box in pixels."""


def screen(*colours: str, size: tuple[int, int] = (WIDE, HIGH)) -> Image.Image:
    """A white screen with the boxes of some colours."""
    made = Image.new("RGB", size, "white")
    for colour in colours:
        ImageDraw.Draw(made).rectangle(BOXES[colour], fill=colour)
    return made


MINUTE = (
    (0.0, screen("red")),
    (5.2, screen("red", "blue")),
    (20.0, screen("red", "blue", "green")),
    (45.0, screen("blue", "green")),
)
"""Frames of a recording of a minute, with their seconds."""
EVENTS: tuple[Mapping[str, Any], ...] = (
    {"time": 1.0, "kind": "move", "x": 3, "y": 3},
    {"time": 5.0, "kind": "down", "x": 50, "y": 36},
    {"time": 5.1, "kind": "up", "x": 50, "y": 36},
    {"time": 19.5, "kind": "click", "x": 160, "y": 120},
    {"time": 30.0, "kind": "press", "key": "h"},
    {"time": 30.3, "kind": "press", "key": "i"},
    {"time": 31.0, "kind": "press", "key": "enter"},
    {"time": 44.0, "kind": "scroll", "x": 32, "y": 216, "dy": -1},
    {"time": 44.2, "kind": "scroll", "x": 32, "y": 216, "dy": -2},
)


def film(to: Path, seconds: float = 60.0, frames: Iterable[tuple[float, Image.Image]] = MINUTE) -> Path:
    """A video file of these frames."""
    to.parent.mkdir(parents=True, exist_ok=True)
    write_video(to, frames, seconds)
    return to


def log(to: Path, events: Iterable[Mapping[str, Any]] = EVENTS) -> Path:
    """An event log."""
    to.write_text("".join(json.dumps(event) + "\n" for event in events))
    return to
