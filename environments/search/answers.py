"""Check answers by rules: text, numbers with units, sets and dates."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass

from common.text import plain

_UNITS: tuple[Mapping[str, float], ...] = (
    {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344},
    {"g": 1.0, "kg": 1000.0, "t": 1e6, "lb": 453.59237},
    {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0},
)
"""Sizes of the units of a kind, by their names; units of a kind are converted into each other."""
_UNIT_NAMES = {
    "metres": "m", "meters": "m", "metre": "m", "meter": "m", "kilometres": "km", "kilometers": "km", "kilometre": "km",
    "kilometer": "km", "miles": "mi", "mile": "mi", "feet": "ft", "foot": "ft", "centimetres": "cm",
    "centimeters": "cm",
    "millimetres": "mm", "millimeters": "mm", "grams": "g", "gram": "g", "kilograms": "kg", "kilogram": "kg",
    "tonnes": "t", "tonne": "t", "pounds": "lb", "pound": "lb", "seconds": "s", "second": "s", "minutes": "min",
    "minute": "min", "hours": "h", "hour": "h", "day": "days", "d": "days",
}  # fmt: skip
_NUMBER = re.compile(r"(?:about |approximately |~ ?)?([+-]?\d{1,3}(?:[, ]\d{3})+(?:\.\d+)?|[+-]?\d+(?:\.\d+)?) ?(.*)")
_DATES = ("%Y-%m-%d", "%d %B %Y", "%B %d %Y", "%d %b %Y", "%b %d %Y", "%d.%m.%Y")
_ORDINAL = re.compile(r"(\d)(?:st|nd|rd|th)\b")
_ITEMS = re.compile(r"[,;\n]")


@dataclass(frozen=True, slots=True)
class RightAnswer:
    """The right answer to a question."""

    value: str | float | datetime.date | tuple[str, ...]
    """A text, a number, a date, or the items of a set."""
    unit: str = ""
    """Unit of a number."""
    tolerance: float = 0.0
    """Largest difference from a number that is still right, in its unit."""

    @property
    def written(self) -> str:
        """Returns the answer as a policy writes it."""
        if isinstance(self.value, tuple):
            return ", ".join(self.value)
        number = isinstance(self.value, int | float)
        return f"{self.value:.12g} {self.unit}".strip() if number else str(self.value)

    def share(self, text: str) -> float:
        """Returns how much of the answer a text has: 1 if it is right; between 0 and 1 only for sets.

        For a set it is the number of right items, divided by the number of all items in the answer or in the text
        (the Jaccard index).
        """
        if isinstance(self.value, tuple):
            return _overlap(self.value, text)
        if isinstance(self.value, datetime.date):
            return float(date_in(text) == self.value)
        if isinstance(self.value, int | float):
            given = number_in(text, self.unit)
            return float(given is not None and abs(given - self.value) <= self.tolerance + 1e-9 * abs(self.value))
        return float(plain(text) == plain(self.value))


def number_in(text: str, unit: str) -> float | None:
    """Reads a number in a unit. A text without a unit is in this unit; a convertible unit is converted.

    Returns:
        The number; None if the text is no number, or in another unit.
    """
    found = _NUMBER.fullmatch(plain(text.replace("−", "-")).replace("\u202f", " "))
    if found is None:
        return None
    number, given, wanted = float(re.sub(r"[, ]", "", found[1])), _unit(found[2]), _unit(unit)
    if given in ("", wanted):
        return number
    sizes = next((one for one in _UNITS if given in one and wanted in one), None)
    return None if sizes is None else number * sizes[given] / sizes[wanted]


def date_in(text: str) -> datetime.date | None:
    """Reads a date, such as `1861-05-03`, `3 May 1861`, `May 3rd, 1861` or `03.05.1861`; None for any other text."""
    words = _ORDINAL.sub(r"\1", plain(text)).replace(",", " ").replace(" of ", " ").removeprefix("on ")
    for form in _DATES:
        try:
            return datetime.datetime.strptime(" ".join(words.split()), form).date()  # noqa: DTZ007
        except ValueError:
            continue
    return None


def _unit(name: str) -> str:
    short = plain(name)
    return _UNIT_NAMES.get(short, short)


def _overlap(wanted: tuple[str, ...], text: str) -> float:
    right, given = {plain(one) for one in wanted}, set[str]()
    for item in map(str.strip, _ITEMS.split(text)):
        whole = {plain(item), plain(item.removeprefix("and "))} & right
        given |= whole or {plain(part) for part in item.split(" and ")}
    return len(right & given) / len(right | (given - {""}))
