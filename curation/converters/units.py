"""Converts units of coordinates; every format names its unit.

`fraction` of the screen in [0, 1], the unit of this project; `thousandths` and `percent` of it; `pixels` of the
screenshot; and `resized_pixels`, pixels of the screenshot as UI-TARS's public parser resizes it. A data set names no
image processor, so the parser's limits apply.
"""

from typing import Literal, get_args

from models.families.screen import smart_resize

Unit = Literal["fraction", "thousandths", "percent", "pixels", "resized_pixels"]
UNITS: tuple[str, ...] = get_args(Unit)
PARSER = (28, 100 * 28**2, 16384 * 28**2)
"""Factor and minimum and maximum pixels of the public parser (ui-tars 0.5.1); a checkpoint has other values."""


def scale_of(unit: str, width: int, height: int) -> tuple[float, float]:
    """Return the screen's width and height in a unit; raise ValueError for an unknown unit."""
    if unit == "pixels":
        return float(width), float(height)
    if unit == "resized_pixels":
        rows, columns = smart_resize(height, width, *PARSER)
        return float(columns), float(rows)
    sides = {"fraction": 1.0, "thousandths": 1000.0, "percent": 100.0}
    if unit not in sides:
        raise ValueError(f"unknown unit {unit!r}; use one of {', '.join(UNITS)}")
    return sides[unit], sides[unit]


def extent_of(unit: str, width: int, height: int) -> str:
    """Return a screen's sides in words."""
    if unit == "fraction":
        return "a screen in fractions of its sides, from 0 to 1"
    across, down = scale_of(unit, width, height)
    return f"a screen of {across:g} x {down:g} {unit}"


def fraction_of(x: float, y: float, unit: str, width: int, height: int) -> tuple[float, float]:
    """Convert a point to fractions of the screen.

    Raises:
        ValueError: the point is outside of the screen, or no number.
    """
    across, down = scale_of(unit, width, height)
    if not (0 <= x <= across and 0 <= y <= down):
        raise ValueError(f"({x:g}, {y:g}) is not a point of {extent_of(unit, width, height)}")
    return x / across, y / down
