"""Define interfaces for walking through an environment's linked pages without a sandbox.

`curation.synthesis.player` uses them to search for the goal of a task. The step limit of the task follows from the cost
of this search.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.world import State


class PageItem(NamedTuple):
    """One item of a page."""

    kind: str
    """`heading`, `text`, `link`, `button` or `text field`."""
    name: str
    value: str = ""
    """Text of a text field."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Content of a page that links to entities: all entities of a kind, or all with certain values."""

    kind: str
    values: Mapping[str, int | str] = field(default_factory=dict[str, int | str])


class PageWalk(ABC):
    """A visit to the pages. Each method except `items` is one step of a policy."""

    state: State

    @abstractmethod
    def items(self) -> Sequence[PageItem]:
        """Lists the items of the open page, in reading order."""

    @abstractmethod
    def click(self, at: int) -> None:
        """Clicks an item, given its index in `items`."""

    @abstractmethod
    def clear(self) -> None:
        """Selects all text of the focused field, so that typing replaces it."""

    @abstractmethod
    def type(self, text: str) -> None:
        """Types text into the focused field."""


class Layout(ABC):
    """Layout of an environment's linked pages. A player may know the layout, but not the content of single pages."""

    home: str = "Home"
    """Name of the link to the home page, which is on every page. The home page links to all listings."""
    listings: Mapping[str, Listing]
    """Listings, by the name of their link on the home page."""

    @abstractmethod
    def walk(self, initial: State, seed: int) -> PageWalk:
        """Starts a new visit from a state, with the seed of a trajectory."""
