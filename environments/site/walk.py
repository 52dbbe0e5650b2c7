"""Walk through the site's pages without a sandbox, for a player that searches for the items of a task."""

from collections.abc import Sequence

from environments.site.app import PEOPLE, Widget, changed, visible_rows
from environments.site.world import TYPES
from schemas.walk import Layout, Listing, PageItem, PageWalk
from schemas.world import Site, State


class SiteLayout(Layout):
    """The layout of a site.

    Args:
        site: whose pages they are.
    """

    listings = {  # noqa: RUF012  (nothing changes it)
        **{f"{name}s": Listing("product", {"type": name}) for name in TYPES},
        **{name: Listing(kind) for kind, name in PEOPLE.items()},
    }

    def __init__(self, site: Site) -> None:
        self._site = site

    def walk(self, initial: State, seed: int) -> PageWalk:
        """A new visit."""
        return SiteWalk(self._site, initial, seed)


class SiteWalk(PageWalk):
    """A visit to the site.

    Args:
        site: whose pages they are.
        initial: the state it starts from.
        seed: of the trajectory, which orders rows and lists.
    """

    def __init__(self, site: Site, initial: State, seed: int) -> None:
        self._site, self._seed, self.state = site, seed, dict(initial)
        self._focused, self._selected = "", False
        self._widgets = self._visible()

    def items(self) -> Sequence[PageItem]:
        """The items of the open page."""
        return [PageItem(one.kind, one.name, one.value) for one in self._widgets]

    def click(self, at: int) -> None:
        """Clicks an item."""
        one = self._widgets[at]
        self._focused, self._selected = (one.do[1], False) if one.kind == "text field" else ("", False)
        if one.do and one.kind != "text field":
            self._become(changed(self.state, one.do))

    def clear(self) -> None:
        """Selects all text of the focused field."""
        self._selected = bool(self._focused)

    def type(self, text: str) -> None:
        """Types into the focused field."""
        if self._focused:
            kept = "" if self._selected else self.state[self._focused]
            self._become(changed(self.state, ("input", self._focused, f"{kept}{text}")))
            self._selected = False

    def _become(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self._widgets = self._visible()

    def _visible(self) -> list[Widget]:
        return [one for row in visible_rows(self._site, self.state, self._seed) for one in row]
