"""Converts a case into the arrays that the local judge's network reads: pixels, words and actions only.

Data that only a page or a verifier has is left out. The area around the last action's point is read at full resolution,
before and after the action. Three whole screens are read coarsely: the oldest, the screen before the last action, and
the last.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

from common.picture import rgb_of
from models.judges.judge import JudgeCase

CROP = (32, 80)
"""Rows and columns of the crop around a point, in pixels of the screen."""
CANVAS = (112, 88)
"""Rows and columns on which a whole screen is laid, scaled by at most a half."""
WORDS, GRAMS, BUCKETS = 24, 48, 4096
"""Maximum words of an instruction, maximum parts of a word, and number of hash buckets for parts."""
LONGEST = 24
"""Maximum characters of a name that are read."""
TYPES = ("click", "left_double", "right_single", "drag", "scroll", "type", "hotkey", "wait", "finished")
RECENT = 3
"""Number of last actions that are encoded one by one."""
WAVES = 6
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Features:
    """Arrays of one case."""

    crops: Array
    """(2, *CROP) uint8: around the last point, before and after the last action, grey."""
    screens: Array
    """(3, *CANVAS) uint8: the oldest screen, the screen before the last action, and the last screen; grey."""
    point: Array
    """(2,) float32: the last point in fractions of the canvas; -1 if no action has a point."""
    words: Array
    """(WORDS, GRAMS) int64: the parts of the instruction's words; 0 for no part."""
    phrase: Array
    """(GRAMS,) int64: the parts of the instruction's quoted text."""
    numbers: Array
    """(n,) float32: actions, counts, and the typed parts of the instruction."""


def features_of(case: JudgeCase) -> Features:
    """Computes the arrays of a case."""
    actions = [_parsed(action) for action in case.actions]
    screens = [grey_of(png) for png in case.screens] or [np.full(CANVAS, 255, np.uint8)]
    before, after = screens[-2:][0], screens[-1]
    x, y, pointed = _point(actions)
    crops = np.stack([crop_of(before, x, y), crop_of(after, x, y)]) if pointed else np.full((2, *CROP), 255, np.uint8)
    canvases = [canvas_of(screen) for screen in (screens[0], before, after)]
    height, width = before.shape
    scale = scale_of(before)
    place = (x * width * scale / CANVAS[1], y * height * scale / CANVAS[0]) if pointed else (-1.0, -1.0)
    return Features(
        crops=crops,
        screens=np.stack(canvases),
        point=np.array(place, np.float32),
        words=np.stack([grams_of(word) for word in words_of(case.instruction)]),
        phrase=grams_of(" ".join(_quoted(case.instruction))),
        numbers=np.array(_numbers(case, actions, (x, y), np.array_equal(before, after)), np.float32),
    )


def stacked(features: Sequence[Features]) -> dict[str, Array]:
    """Stacks several cases, array by array, for `network.JudgeNet`."""
    names = ("crops", "screens", "point", "words", "phrase", "numbers")
    return {name: np.stack([getattr(one, name) for one in features]) for name in names}


@lru_cache(maxsize=64)
def grey_of(png: bytes) -> Array:
    """Decodes a screen in grey, (rows, columns) uint8; white if the bytes are no picture."""
    try:
        return np.asarray(rgb_of(png).convert("L"))
    except (OSError, ValueError):
        return np.full(CANVAS, 255, np.uint8)


def crop_of(screen: Array, x: float, y: float) -> Array:
    """Crops the screen around a point in fractions of the screen; white outside of the screen."""
    rows, columns = CROP
    top, left = round(y * screen.shape[0]) - rows // 2, round(x * screen.shape[1]) - columns // 2
    crop = np.full(CROP, 255, np.uint8)
    seen = screen[max(top, 0) : max(top + rows, 0), max(left, 0) : max(left + columns, 0)]
    down, right = max(-top, 0), max(-left, 0)
    crop[down : down + seen.shape[0], right : right + seen.shape[1]] = seen
    return crop


def scale_of(screen: Array) -> float:
    """Computes the factor by which a screen is reduced to fit the canvas."""
    return min(0.5, CANVAS[0] / screen.shape[0], CANVAS[1] / screen.shape[1])


def canvas_of(screen: Array) -> Array:
    """Lays the reduced screen in the canvas's upper left corner."""
    scale = scale_of(screen)
    rows, columns = (max(1, min(most, int(scale * size))) for size, most in zip(screen.shape, CANVAS, strict=True))
    canvas = np.full(CANVAS, 255, np.uint8)
    canvas[:rows, :columns] = np.asarray(Image.fromarray(screen).resize((columns, rows), Image.Resampling.BOX))
    return canvas


def words_of(instruction: str) -> list[str]:
    """Lists the instruction's first words and signs, padded with empty words."""
    found = re.findall(r"-?\d+\w*|\w+|[^\w\s]", instruction.lower())[:WORDS]
    return found + [""] * (WORDS - len(found))


def grams_of(name: str) -> Array:
    """Hashes a name's parts of one to three characters, with marked ends; (GRAMS,) int64, 0 for no part."""
    marked = f"^{' '.join(name.lower().split())[:LONGEST]}$" if name.strip() else ""
    grams = [marked[at : at + size] for size in (3, 2, 1) for at in range(len(marked) - size + 1)]
    ids = [_bucket(gram) for gram in dict.fromkeys(grams)][:GRAMS]
    return np.array(ids + [0] * (GRAMS - len(ids)), np.int64)


@lru_cache(maxsize=65536)
def _bucket(gram: str) -> int:
    return 1 + int.from_bytes(hashlib.md5(gram.encode(), usedforsecurity=False).digest()[:4], "big") % (BUCKETS - 1)


def _quoted(instruction: str) -> list[str]:
    return re.findall(r'"([^"]+)"', instruction)


def _parsed(action: str | None) -> dict[str, Any]:
    return json.loads(action) if action else {}


def _point(actions: Sequence[dict[str, Any]]) -> tuple[float, float, bool]:
    for action in reversed(actions):
        if "x" in action:
            return action["x"], action["y"], True
    return 0.5, 0.5, False


def _numbers(case: JudgeCase, actions: Sequence[dict[str, Any]], at: tuple[float, float], still: bool) -> list[float]:
    recent: list[dict[str, Any]] = ([{}] * RECENT + list(actions))[-RECENT:]
    typed = [str(action["content"]) for action in actions if "content" in action]
    quoted = _quoted(case.instruction)
    asked = [*(int(found[:9]) for found in re.findall(r"-?\d+", case.instruction)), 0, 0]
    facts = [
        min(len(actions), 8) / 8,
        min(len(typed), 4) / 4,
        quoted != [],
        any(word == text for word in quoted for text in typed),
        any(word in text for word in quoted for text in typed),
        still,
        *at,
        *(max(-9, min(9, number)) / 5 for number in asked[:2]),
        *(float(word in case.instruction.lower().split()) for word in ("larger", "smaller", "height", "width")),
    ]
    return [float(one) for one in (*facts, *_waves(at), *(n for action in recent for n in _action(action)))]


def _action(action: dict[str, Any]) -> Iterable[float]:
    yield from (float(action.get("type") == kind) for kind in TYPES)
    yield from (float(action.get("direction") == way) for way in ("up", "down"))
    start, end = (action.get("x", 0.0), action.get("y", 0.0)), (action.get("to_x", 0.0), action.get("to_y", 0.0))
    yield from (*start, *end)
    yield from ((end[0] - start[0]) * 3, (end[1] - start[1]) * 3) if "to_x" in action else (0.0, 0.0)


def _waves(place: tuple[float, float]) -> Iterable[float]:
    """Yields sines and cosines of a point's coordinates, so that a small network can distinguish nearby points."""
    for axis in place:
        for wave in range(WAVES):
            yield float(np.sin(np.pi * 2 ** (wave / 1.5) * axis))
            yield float(np.cos(np.pi * 2 ** (wave / 1.5) * axis))
