"""The seam for screens that no page describes: who reads elements off the pixels (a desktop, an imported data set).

`annotate.reader` names one: `page` for none, `rapidocr`, or `my_package.my_module:MyReader`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from schemas.observation import Element
from schemas.registry import Registry

NONE = "page"
"""Elements are what pages list, and nothing is read."""


class ScreenReader(ABC):
    """Reads elements off a picture; made without arguments."""

    name: ClassVar[str]
    """Its name and version, kept with every reading: what another one read is read again."""

    @classmethod
    def require(cls) -> None:
        """Raises FlywheelError, naming what to install, where it cannot be made."""
        return

    @abstractmethod
    def read(self, png: bytes) -> list[Element]:
        """What is on the picture of this PNG, from top to bottom, boxes in [0, 1]; raises FlywheelError for none."""


READERS: Registry[ScreenReader] = Registry(
    "annotate.reader", ScreenReader, {"rapidocr": "models.readers.rapid:RapidReader"}
)


def reader_class(name: str) -> type[ScreenReader] | None:
    """The configured reader's class; None for `page`.

    Raises:
        UsageError: there is none of that name.
        FlywheelError: what it needs is not installed.
    """
    if name == NONE:
        return None
    found = READERS.class_of(name)
    found.require()
    return found
