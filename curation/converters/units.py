"""Units of coordinates: a number without its unit says nothing, so every format names its own.

`fraction` of the screen in [0, 1], which is ours; `thousandths` and `percent` of it; `pixels` of the screenshot; and
`resized_pixels`, pixels of the screenshot as UI-TARS's public parser resizes it: a data set names no image processor,
so the parser's own limits are its convention.
"""

from typing import Literal, get_args

from models.families.screen import smart_resize

Unit = Literal["fraction", "thousandths", "percent", "pixels", "resized_pixels"]
UNITS: tuple[str, ...] = get_args(Unit)
PARSER = (28, 100 * 28**2, 16384 * 28**2)
"""Factor and least and most pixels of the public parser (ui-tars 0.5.1); a checkpoint's own come from its processor."""


def scale_of(unit: str, width: int, height: int) -> tuple[float, float]:
    """How many of the unit the screen is wide and high; raises ValueError for a unit that is none."""
    if unit == "pixels":
        return float(width), float(height)
    if unit == "resized_pixels":
        rows, columns = smart_resize(height, width, *PARSER)
        return float(columns), float(rows)
    sides = {"fraction": 1.0, "thousandths": 1000.0, "percent": 100.0}
    if unit not in sides:
        raise ValueError(f"there is no unit {unit!r}; one of {', '.join(UNITS)}")
    return sides[unit], sides[unit]


def extent_of(unit: str, width: int, height: int) -> str:
    """A screen's sides in words."""
    if unit == "fraction":
        return "a screen in fractions of its sides, from 0 to 1"
    across, down = scale_of(unit, width, height)
    return f"a screen of {across:g} x {down:g} {unit}"


def fraction_of(x: float, y: float, unit: str, width: int, height: int) -> tuple[float, float]:
    """A point in fractions of the screen.

    Raises:
        ValueError: it lies outside of the screen, or is no number.
    """
    across, down = scale_of(unit, width, height)
    if not (0 <= x <= across and 0 <= y <= down):
        raise ValueError(f"({x:g}, {y:g}) is no point of {extent_of(unit, width, height)}")
    return x / across, y / down
