"""Plays tasks with knowledge of the pages' layout and the words' grammar, but not of the pages' contents.

The player follows an instruction sentence by sentence, searches page by page for the described entity, and remembers
the pages that it has seen. So it measures the number of steps of a search, and checks whether following the words leads
to the rewarded state. It never scrolls, since a layout's pages fit the screen.

`searched` measures the search cost of a made task for its step limit, and checks that its words lead to its reward.
"""

import math
import re
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from curation.synthesis.maker import Unreadable
from curation.synthesis.words import Ask, Meant, asks
from schemas.world import FieldCheck, Layout, Listing, PageItem, PageWalk, Site, State, score

Move = tuple[str, int | str]
"""A step: `click` an item by its place, `clear` the focused field, or `type` a text."""
CART = "Cart"
"""Name of the link to the cart; it is on every page and counts the cart's contents."""
_COUNTED = re.compile(r"(.+) \(\d+\)")


class PlayerLost(Exception):
    """Raised if the player has searched everywhere, or if the screen lacks a required item."""


@dataclass(frozen=True, slots=True)
class _SeenPage:
    """Content of an entity's page."""

    kind: str
    values: dict[str, str | int]
    links: dict[str, str] = field(default_factory=dict[str, str])
    """Titles by relation."""
    back: tuple[str, ...] = ()
    """Titles of other linked pages."""


class Player:
    """The player's memory in one trajectory.

    Args:
        site: the site, of which only attributes, relations and goods are read, not entities.
        layout: the contents of each listing.
    """

    def __init__(self, site: Site, layout: Layout) -> None:
        kinds = dict.fromkeys(one.of for one in site.attributes)
        self._about = {kind: {one.name for one in site.about(kind)} for kind in kinds}
        self._relations, self._goods, self._layout = site.relations, site.goods, layout
        self._items: Sequence[PageItem] = ()
        self._at = ""
        self._links: dict[str, list[str]] = {}
        """Names of links on each opened page, by the page's name."""
        self._seen: dict[str, _SeenPage] = {}

    def play(self, sentences: Iterable[Ask]) -> Generator[Move, Sequence[PageItem], None]:
        """Yield steps, and receive the screen's items after each step; the first items received are the initial
        screen's.

        Raises:
            PlayerLost: the target of a sentence is not found.
        """
        self._look((yield ("look", 0)))
        for ask in sentences:
            match ask.verb:
                case "open":
                    yield from self._open(ask)
                case "answer":
                    yield from self._answer(ask)
                case "cart":
                    yield from self._fill(ask)
                case _:
                    yield from self._note(ask)

    def _open(self, ask: Ask) -> Generator[Move, Sequence[PageItem], str]:
        """Open the page of a sentence; return its title."""
        assert ask.meant is not None
        kinds = {
            "cart": [self._goods],
            "answer": [kind for kind, names in self._about.items() if ask.attribute in names],
        }
        title = yield from self._find(ask.meant, kinds.get(ask.verb, self._about), ())
        if title is None:
            raise PlayerLost(f"no page matches {ask.meant.text}")
        yield from self._go(title)
        return title

    def _answer(self, ask: Ask) -> Generator[Move, Sequence[PageItem], None]:
        title = yield from self._open(ask)
        value = self._seen[title].values.get(ask.attribute)
        yield from self._click("button", f"Use {value}")
        yield from self._click("button", "Hand in")

    def _fill(self, ask: Ask) -> Generator[Move, Sequence[PageItem], None]:
        title = yield from self._open(ask)
        for _ in range(ask.count):
            yield from self._click("button", "Add to cart")
        if f"{CART} ({ask.count})" in (one.name for one in self._items):
            return
        yield from self._go(CART)
        while (wrong := self._wrong(title, ask.count)) is not None:
            yield from self._act(("click", wrong))

    def _wrong(self, title: str, wanted: int) -> int | None:
        """Return the index of the next button towards a cart with only `wanted` of one item; None if the cart is
        correct."""
        for at, one in enumerate(self._items):
            if one.kind == "text" and (found := re.fullmatch(r"(\d+) x", one.name)):
                excess = int(found[1]) - (wanted if self._items[at + 1].name == title else 0)
                if excess:
                    button = "Less" if excess > 0 else "More"
                    return next(place for place in count(at) if self._items[place][:2] == ("button", button))
        return None

    def _note(self, ask: Ask) -> Generator[Move, Sequence[PageItem], None]:
        yield from self._go(CART)
        place = self._place("text field", "Note")
        held = self._items[place].value
        yield from self._act(("click", place))
        if held:
            yield from self._act(("clear", 0))
        yield from self._act(("type", ask.text))

    def _find(
        self, meant: Meant, kinds: Collection[str], but: Collection[str]
    ) -> Generator[Move, Sequence[PageItem], str | None]:
        """Return the title of a page that fits `meant` and is not in `but`; None if there is none.

        The page may not have been opened yet.

        Args:
            meant: the reference in a sentence.
            kinds: possible kinds of a title.
            but: titles that were found before.
        """
        if meant.title:
            return None if meant.title in but else (yield from self._listed(meant.title, kinds))
        tried: set[str] = set()
        if meant.of is not None:
            having = [one.of for one in self._relations if one.name == meant.relation]
            while (one := (yield from self._find(meant.of, having, tried))) is not None:
                tried.add(one)
                yield from self._go(one)
                end = self._seen[one].links.get(meant.relation)
                if end is not None and end not in but:
                    return end
            return None
        ends = [one.to for one in self._relations if (one.of, one.name) == (meant.kind, meant.relation)]
        while meant.end and (one := (yield from self._find(meant.end, ends, tried))) is not None:
            tried.add(one)
            yield from self._go(one)
            if found := (yield from self._first(self._seen[one].back, meant, but)):
                return found
        return (yield from self._searched(meant, but))

    def _listed(self, title: str, kinds: Collection[str]) -> Generator[Move, Sequence[PageItem], str | None]:
        """Open listings until one links to a title."""
        while title not in self._ways():
            fitting = [name for name in self._listings() if self._layout.listings[name].kind in kinds]
            unopened = [name for name in fitting if name not in self._links]
            if not unopened:
                return None
            yield from self._go(self._nearest(unopened))
        return title

    def _listings(self) -> list[str]:
        """Return the names of the listings, in the order of the home page if it was opened."""
        seen = [name for name in self._links.get(self._layout.home, ()) if name in self._layout.listings]
        return seen or list(self._layout.listings)

    def _searched(self, meant: Meant, but: Collection[str]) -> Generator[Move, Sequence[PageItem], str | None]:
        """Search the listings that can list the referenced entity."""
        listings = [name for name in self._listings() if _may_list(self._layout.listings[name], meant)]
        while True:
            opened = [name for name in listings if name in self._links]
            titles = [title for name in opened for title in self._links[name] if title not in (self._layout.home, CART)]
            if found := (yield from self._first(titles, meant, but)):
                return found
            if len(opened) == len(listings):
                return None
            yield from self._go(self._nearest([name for name in listings if name not in opened]))

    def _first(
        self, titles: Iterable[str], meant: Meant, but: Collection[str]
    ) -> Generator[Move, Sequence[PageItem], str | None]:
        """Return the first of some titles that fits `meant`; titles of opened pages take no step."""
        left = [title for title in dict.fromkeys(titles) if title not in but]
        while left:
            title = next((one for one in left if one in self._seen), None) or self._nearest(left)
            left.remove(title)
            if (yield from self._is(title, meant)):
                return title
        return None

    def _is(self, title: str, meant: Meant) -> Generator[Move, Sequence[PageItem], bool]:
        """Whether a title fits `meant`; opens its page if necessary."""
        if meant.title:
            return title == meant.title
        if meant.of is not None:
            tried: set[str] = set()
            while (one := (yield from self._find(meant, (), tried))) is not None and one != title:
                tried.add(one)
            return one is not None
        if title not in self._seen:
            yield from self._go(title)
        seen = self._seen[title]
        if seen.kind != meant.kind or not all(test.met(seen.values) for test in meant.tests):
            return False
        if meant.end is None:
            return True
        end = seen.links.get(meant.relation)
        return end is not None and (yield from self._is(end, meant.end))

    def _go(self, name: str) -> Generator[Move, Sequence[PageItem], None]:
        """Open a page by the shortest known way."""
        for link in self._ways().get(name, ()):
            place = next(at for at, one in enumerate(self._items) if one.kind == "link" and _plain(one.name) == link)
            yield from self._act(("click", place))
        if self._at != name:
            raise PlayerLost(f"no way leads to {name}")

    def _nearest(self, names: Sequence[str]) -> str:
        """Return the first name of a link with the shortest way."""
        ways = self._ways()
        return min(names, key=lambda name: len(ways[name]) if name in ways else math.inf)

    def _ways(self) -> dict[str, tuple[str, ...]]:
        """Return the links from the open page to every page of a known name, by name."""
        ways: dict[str, tuple[str, ...]] = {self._at: ()}
        queue = [self._at]
        for at in queue:
            for link in self._links.get(at) or self._unopened(at):
                if link not in ways:
                    ways[link] = (*ways[at], link)
                    queue.append(link)
        return ways

    def _unopened(self, name: str) -> Sequence[str]:
        """Return the links of an unopened page by only the layout."""
        return (CART, *self._layout.listings) if name == self._layout.home else (self._layout.home, CART)

    def _act(self, move: Move) -> Generator[Move, Sequence[PageItem], None]:
        clicked = self._items[move[1]] if move[0] == "click" and isinstance(move[1], int) else None
        items = yield move
        if clicked is not None and clicked.kind == "link":
            self._at = _plain(clicked.name)
        self._look(items)

    def _click(self, kind: str, name: str) -> Generator[Move, Sequence[PageItem], None]:
        yield from self._act(("click", self._place(kind, name)))

    def _place(self, kind: str, name: str) -> int:
        for at, one in enumerate(self._items):
            if (one.kind, one.name) == (kind, name):
                return at
        raise PlayerLost(f"the screen shows no {kind} {name!r}")

    def _look(self, items: Sequence[PageItem]) -> None:
        """Record the items of the screen."""
        self._items = items
        heading = next(at for at, one in enumerate(items) if one.kind == "heading")
        title = items[heading].name
        about = re.fullmatch(r"\((.+)\)", items[heading + 1].name) if items[heading + 1].kind == "text" else None
        if not self._at:
            self._at = title if about or title in (*self._layout.listings, CART) else self._layout.home
        self._links[self._at] = list(dict.fromkeys(_plain(one.name) for one in items if one.kind == "link"))
        if about:
            self._seen[title] = self._page(items, about[1])

    def _page(self, items: Sequence[PageItem], kind: str) -> _SeenPage:
        """Parse an entity's page: a text `name: value`, a text `relation:` before its link, other links."""
        seen = _SeenPage(kind if kind in self._about else self._goods, {}, {})
        back: list[str] = []
        relation = ""
        for one in items:
            if one.kind == "text" and ": " in one.name:
                name, _, value = one.name.partition(": ")
                seen.values[name] = int(value) if value.isdigit() else value
            elif one.kind == "text":
                relation = one.name.removesuffix(":")
            elif one.kind == "link" and _plain(one.name) not in (self._layout.home, CART):
                if relation and relation != "See also":
                    seen.links[relation] = one.name
                    relation = ""
                else:
                    back.append(one.name)
        return _SeenPage(seen.kind, seen.values, seen.links, tuple(back))


def _may_list(listing: Listing, meant: Meant) -> bool:
    known = [test for test in meant.tests if test.attribute in listing.values]
    return listing.kind == meant.kind and all(test.met(listing.values) for test in known)


def _plain(name: str) -> str:
    """Return the name of a link without its count."""
    found = _COUNTED.fullmatch(name)
    return found[1] if found else name


TRIES = 12
"""Number of trajectories, with different seeds, in which the player searches."""
MARGIN = 1.5
"""Factor of a task's step limit over the steps of the longest of these trajectories."""
SLACK = 4
"""Additional steps, so that a short task allows a mistake."""
MAX_STEPS = 100
"""Maximum step limit of a task, unless `synthesis.max_steps` is set."""


@dataclass(frozen=True, slots=True)
class PlaySearch:
    """Result of playing a task."""

    limit: int = 0
    """Step limit, with the margin; 0 if the player did not solve the task."""
    reason: str = ""
    """Reason without a solution: `search` if the target was not found within the maximum limit, `contradiction` if
    following the words was not rewarded."""
    problem: str = ""
    """The reason in words."""


def searched(
    site: Site, layout: Layout, instruction: str, initial: State, checks: Sequence[FieldCheck], max_steps: int
) -> PlaySearch | None:
    """Play a task in trajectories of several seeds; return None if the player cannot parse its words.

    Args:
        site: the site, of which only the vocabulary is used, not entities.
        layout: layout of its pages.
        instruction: the words.
        initial: initial state of the task.
        checks: its reward.
        max_steps: maximum step limit of a task.
    """
    blind = vocabulary(site)
    try:
        sentences = asks(blind, instruction)
    except Unreadable:
        return None

    def rewarded(state: State) -> bool:
        return score(checks, state) == 1.0

    longest = 0
    for seed in range(TRIES):
        walk = layout.walk(initial, seed)
        try:
            steps = steps_of(Player(blind, layout), walk, sentences, rewarded, int((max_steps - SLACK) / MARGIN))
        except PlayerLost as error:
            return PlaySearch(reason="search", problem=str(error))
        if steps is None:
            problem = "played as they are written, the words end in a state that is not rewarded"
            return PlaySearch(reason="contradiction", problem=problem)
        longest = max(longest, steps)
    return PlaySearch(math.ceil(longest * MARGIN) + SLACK)


def vocabulary(site: Site) -> Site:
    """Return a site without its entities: the vocabulary, which a player may know."""
    return site.model_copy(update={"entities": ()})


def steps_of(
    player: Player, walk: PageWalk, sentences: Iterable[Ask], done: Callable[[State], bool], max_steps: int
) -> int | None:
    """Return the number of steps until a state is rewarded; None if the player ends before.

    Args:
        player: a player with an empty memory.
        walk: the site's walk at its start.
        sentences: the parsed instruction.
        done: whether a state is rewarded.
        max_steps: maximum number of steps.

    Raises:
        PlayerLost: the player finds no next step, or takes more steps.
    """
    moves = player.play(sentences)
    next(moves)
    for step in range(max_steps + 1):
        if done(walk.state):
            return step
        try:
            kind, what = moves.send(walk.items())
        except StopIteration:
            return None
        if kind == "click" and isinstance(what, int):
            walk.click(what)
        elif kind == "clear":
            walk.clear()
        else:
            walk.type(str(what))
    raise PlayerLost(f"a search takes more than {max_steps} steps")
