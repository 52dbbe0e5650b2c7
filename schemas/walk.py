"""Linked pages without a sandbox: what a page shows in a state, and what a click or a text changes.

An environment that has these lets a player look for what a task asks for, so that the task's limit follows from the
cost of the search (`curation.synthesis.player`).
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
    """Of a text field."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a page that links to entities lists: all of a kind, or all of it that have these values."""

    kind: str
    values: Mapping[str, int | str] = field(default_factory=dict[str, int | str])


class PageWalk(ABC):
    """A visit to the pages; each method but `items` is one step of an agent."""

    state: State

    @abstractmethod
    def items(self) -> Sequence[PageItem]:
        """What the open page shows."""

    @abstractmethod
    def click(self, at: int) -> None:
        """Clicks an item, by its place in `items`."""

    @abstractmethod
    def clear(self) -> None:
        """Selects all text of the focused field, so that what is typed replaces it."""

    @abstractmethod
    def type(self, text: str) -> None:
        """Types into the focused field."""


class Layout(ABC):
    """The layout of an environment's linked pages, which an agent may know; what single pages hold it may not."""

    home: str = "Home"
    """The link to the page that links to all listings; it is on every page."""
    listings: Mapping[str, Listing]
    """By the name of the link on the home page."""

    @abstractmethod
    def walk(self, initial: State, seed: int) -> PageWalk:
        """A new visit, from a state, with the seed of a trajectory."""
