"""Defines screen readers, which find elements in pixels if no page lists them (a desktop, an imported data set).

`annotate.reader` names a reader: `page` for none, `rapidocr`, or `my_package.my_module:MyReader`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

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


READERS: Registry[ScreenReader] = Registry(
    "annotate.reader", ScreenReader, {"rapidocr": "models.readers.rapid:RapidReader"}
)


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
