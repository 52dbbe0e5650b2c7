"""Linked pages without a sandbox: the content of a page in a state, and the effects of a click or a text.

An environment with such pages lets a player search for a task's goal, so that the task's limit follows from the cost of
the search (`curation.synthesis.player`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.world import State


class PageItem(NamedTuple):
    """One thing on a page, in reading order."""

    kind: str
    """`heading`, `text`, `link`, `button` or `text field`."""
    name: str
    value: str = ""
    """Text of a text field."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Content of a page that links to entities: all of a kind, or all of it that have these values."""

    kind: str
    values: Mapping[str, int | str] = field(default_factory=dict[str, int | str])


class PageWalk(ABC):
    """A visit to the pages; each method but `items` is one step of an agent."""

    state: State

    @abstractmethod
    def items(self) -> Sequence[PageItem]:
        """Lists the items of the open page."""

    @abstractmethod
    def click(self, at: int) -> None:
        """Clicks an item, by its place in `items`."""

    @abstractmethod
    def clear(self) -> None:
        """Selects all text of the focused field, so that typing replaces it."""

    @abstractmethod
    def type(self, text: str) -> None:
        """Types into the focused field."""


class Layout(ABC):
    """Layout of an environment's linked pages, which an agent may know; the content of single pages it may not."""

    home: str = "Home"
    """The link to the page that links to all listings; it is on every page."""
    listings: Mapping[str, Listing]
    """Listings by the name of the link on the home page."""

    @abstractmethod
    def walk(self, initial: State, seed: int) -> PageWalk:
        """Starts a new visit, from a state, with the seed of a trajectory."""
