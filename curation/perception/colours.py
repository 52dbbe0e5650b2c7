"""Find the colour that fills an element's box, from its pixels."""

from functools import lru_cache

from PIL import Image

from common.picture import rgb_of
from schemas.observation import Element

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (50, 80, 220),
    "orange": (240, 150, 30),
    "yellow": (250, 230, 50),
    "black": (20, 20, 20),
}
"""Unambiguous colours; whites and greys are left out, as they are everywhere."""
NEAR = 60.0
"""Maximum distance in RGB of a named colour."""
FILLED = 0.5
"""Minimum share of the box that a colour fills."""


def colour(png: bytes, element: Element) -> str:
    """Return the name of the colour that fills an element's box; empty where none does, or without a picture."""
    if not png:
        return ""
    picture = _opened(png)
    left, top, right, bottom = (
        round(edge * size) for edge, size in zip(element.box, (picture.width, picture.height) * 2, strict=True)
    )
    found = picture.crop((left, top, max(left + 1, right), max(top + 1, bottom)))
    pixels = found.width * found.height
    count, rgb = max(found.getcolors(pixels) or [(0, ())])
    if count < FILLED * pixels or not isinstance(rgb, tuple):
        return ""
    name, distance = min(((name, _distance(rgb, known)) for name, known in COLOURS.items()), key=lambda one: one[1])
    return name if distance <= NEAR else ""


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5


@lru_cache(maxsize=4)
def _opened(png: bytes) -> Image.Image:
    return rgb_of(png)
