"""Screen readers find elements in pixels where no page lists them (a desktop, an imported data set).

`annotate.reader` names one: `page` for none, `rapidocr`, or `my_package.my_module:MyReader`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from schemas.observation import Element
from schemas.registry import Registry

NONE = "page"
"""Name for no reader: elements are those that pages list."""


class ScreenReader(ABC):
    """Reads elements off a picture; made without arguments."""

    name: ClassVar[str]
    """Name and version, kept with every reading; another version reads screens again."""

    @classmethod
    def require(cls) -> None:
        """Raises FlywheelError, naming the package to install, where it cannot be made."""
        return

    @abstractmethod
    def read(self, png: bytes) -> list[Element]:
        """Reads the elements of this PNG, from top to bottom, boxes in [0, 1]; raises FlywheelError for no picture."""


READERS: Registry[ScreenReader] = Registry(
    "annotate.reader", ScreenReader, {"rapidocr": "models.readers.rapid:RapidReader"}
)


def reader_class(name: str) -> type[ScreenReader] | None:
    """Finds the configured reader's class; None for `page`.

    Raises:
        UsageError: there is none of that name.
        FlywheelError: a package that it needs is not installed.
    """
    if name == NONE:
        return None
    found = READERS.class_of(name)
    found.require()
    return found
