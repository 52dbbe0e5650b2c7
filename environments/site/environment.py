"""Run the site as an environment: linked pages for made tasks, which are verified by their final state.

The module can also walk through the site's pages without a sandbox, for a player that searches for a task's items.

A sandbox has one of two skins: pages of a real browser, or pages drawn in this process for tests.

`environments.site.app` decides the content of a page and the effect of a click for both. The browser's page holds no
state except the text of its fields, and reports clicks and text after every action. So a state can be set, and a
verifier never reads a claim of the page.
"""

import html
import io
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from PIL import Image, ImageDraw, ImageFont
from pydantic import Field

from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.page import PageKind
from environments.chromium.sandbox import BrowserSandbox
from environments.host import Host, NoHost
from environments.sandbox import Sandbox, StatefulSandbox
from environments.site.app import PEOPLE, ROOTS, START, TYPES, Rows, Widget, changed, site_of, visible_rows, world_of
from schemas import action as act
from schemas.config.section import Whole
from schemas.config.sections import EnvironmentConfig
from schemas.failure import ActionFailure, Probe
from schemas.observation import Element, Observation
from schemas.tables.task import GuiTask, TaskEntry
from schemas.world import FieldCheck, Layout, Listing, PageItem, PageWalk, Setup, Site, State, World

WIDTH = HEIGHT = 320
HERE = Path(__file__).parent
_ROW, _FIELD = 16, 120
NOTES = ("thanks", "hello", "by post", "no bag", "a gift", "call first", "ring twice", "to the desk")
ENTRIES: Mapping[str, TaskEntry] = {
    ROOTS["open"].task: TaskEntry(instruction='Open the page of "{}".', tags=("site", "navigation"), max_steps=8),
    ROOTS["answer"].task: TaskEntry(
        instruction='Find the {} of "{}" and hand it in as the answer.', tags=("site", "question"), max_steps=8
    ),
    ROOTS["cart"].task: TaskEntry(
        instruction='Have {} of "{}" in the cart and nothing else.', tags=("site", "form"), max_steps=8
    ),
    ROOTS["note"].task: TaskEntry(instruction='Write "{}" as the note.', tags=("site", "form", "typing"), max_steps=6),
}
"""The site's own tasks by template, each with an instance for every seed; made tasks of the site descend from them."""


class SiteSandbox(StatefulSandbox):
    """The common parts of both skins."""

    site: Site
    _state: State
    _instruction = ""
    _seed = 0

    @property
    def state(self) -> State:
        """Returns the current state."""
        return self._state

    @property
    def over(self) -> bool:
        """Returns whether the answer was handed in."""
        return bool(self._state["submitted"])

    @property
    def rows(self) -> Rows:
        """Returns the current content of the page."""
        return visible_rows(self.site, self._state, self._seed)

    def _set(self, task: GuiTask, seed: int) -> None:
        if task.setup is not None:
            self._instruction, self.setup = task.instruction, Setup.model_validate_json(task.setup)
        else:
            self._instruction, self.setup = instance(task.template, self.site, seed)
        self._seed = seed
        self._state = dict(self.setup.initial)


class ChromiumSiteSandbox(BrowserSandbox, SiteSandbox):
    """The site in a page of a browser."""

    kind = PageKind(WIDTH, HEIGHT, (HERE / "site.css").as_uri(), "")
    _elements = "world.__site.elements()"

    def __init__(self, browser: Browser, config: EnvironmentConfig, site: Site) -> None:
        super().__init__(browser, config)
        self.site = site

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._set(task, seed)
        await self._open((HERE / "site.html").as_uri(), f"world.__site.show({json.dumps(_html(self.rows))})")

    async def _react(self, action: act.Action) -> None:
        """Processes the page's events, and shows a new page if they changed more than a field's text."""
        moved = False
        for done in await self._page.evaluate("world.__site.events()"):
            before, self._state = self._state, changed(self._state, tuple(map(str, done)))
            moved = moved or (done[0] != "input" and self._state != before)
        if moved:
            await self._page.evaluate(f"world.__site.show({json.dumps(_html(self.rows))})")


class DrawnSiteSandbox(SiteSandbox):
    """The site drawn with PIL: no browser, for tests; no scrolling, and no keys but text."""

    def __init__(self, config: EnvironmentConfig, site: Site) -> None:
        super().__init__(config)
        self.site = site
        self._focused: tuple[str, ...] = ()

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._set(task, seed)

    async def _observe(self, elements: bool) -> Observation:
        placed = _placed(self.rows)
        found = tuple(_listed(widget, box) for widget, box in placed) if elements else ()
        return Observation(_drawn(placed), WIDTH, HEIGHT, self._instruction, found)

    async def _perform(self, action: act.Action) -> None:
        if isinstance(action, act.Click):
            x, y = action.x * WIDTH, action.y * HEIGHT
            hit = next((one for one, (left, top, right, bottom) in _placed(self.rows)
                        if one.do and left <= x <= right and top <= y <= bottom), None)  # fmt: skip
            self._focused = hit.do if hit and hit.kind == "text field" else ()
            if hit and hit.kind != "text field":
                self._state = changed(self._state, hit.do)
        elif isinstance(action, act.Type) and self._focused:
            field = self._focused[1]
            self._state = changed(self._state, ("input", field, f"{self._state[field]}{action.content}"))
        elif not isinstance(action, act.Wait | act.Scroll | act.Drag | act.Move | act.Hotkey | act.Type):
            raise ActionFailure(f"the drawn site cannot perform {action.type}")

    async def _stop(self) -> None:
        return


def _html(rows: Rows) -> str:
    return "".join(f"<div>{' '.join(_tag(widget) for widget in row)}</div>" for row in rows)


_TAGS = {
    "heading": "<h1>{name}</h1>",
    "text": "<span>{name}</span>",
    "link": '<a href="#" data-do="{do}">{name}</a>',
    "button": '<button data-do="{do}">{name}</button>',
    "text field": '<input data-do="{do}" value="{value}" title="{name}" autocomplete="off">',
}


def _tag(one: Widget) -> str:
    fields = {"name": one.name, "do": json.dumps(one.do), "value": one.value}
    return _TAGS[one.kind].format_map({name: html.escape(text) for name, text in fields.items()})


Box = tuple[int, int, int, int]


def _placed(rows: Rows) -> list[tuple[Widget, Box]]:
    """Lists each widget with its box in pixels, in rows from the top; the last row is at the bottom."""
    font, placed = ImageFont.load_default(10), list[tuple[Widget, Box]]()
    for at, row in enumerate(rows):
        top, left = (HEIGHT - _ROW if at == len(rows) - 1 else 2 + at * _ROW), 4
        for one in row:
            wide = _FIELD if one.kind == "text field" else round(font.getlength(one.name)) + 6
            placed.append((one, (left, top, left + wide, top + _ROW - 3)))
            left += wide + 6
    return placed


def _drawn(placed: list[tuple[Widget, Box]]) -> bytes:
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(10)
    for one, box in placed:
        if one.kind in ("button", "text field"):
            pen.rectangle(box, outline="black", fill="lightgray" if one.kind == "button" else "white")
        colour = "blue" if one.kind == "link" else "black"
        pen.text((box[0] + 3, box[1] + 1), one.value if one.kind == "text field" else one.name, fill=colour, font=font)
    png = io.BytesIO()
    image.save(png, "png", compress_level=1)
    return png.getvalue()


def _listed(one: Widget, box: Box) -> Element:
    kind = "text" if one.kind == "heading" else one.kind
    left, top, right, bottom = (edge / WIDTH for edge in box)
    return Element(one.name, kind, (left, top, right, bottom), bool(one.do), one.value)


class SiteLayout(Layout):
    """The layout of a site.

    Args:
        site: the site of the pages.
    """

    listings = {  # noqa: RUF012  (nothing changes it)
        **{f"{name}s": Listing("product", {"type": name}) for name in TYPES},
        **{name: Listing(kind) for kind, name in PEOPLE.items()},
    }

    def __init__(self, site: Site) -> None:
        self._site = site

    def walk(self, initial: State, seed: int) -> PageWalk:
        """Starts a new visit."""
        return SiteWalk(self._site, initial, seed)


class SiteWalk(PageWalk):
    """A visit to the site.

    Args:
        site: the site of the pages.
        initial: the initial state.
        seed: seed of the trajectory, which orders rows and lists.
    """

    def __init__(self, site: Site, initial: State, seed: int) -> None:
        self._site, self._seed, self.state = site, seed, dict(initial)
        self._focused, self._selected = "", False
        self._widgets = self._visible()

    def items(self) -> Sequence[PageItem]:
        """Lists the items of the open page."""
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


class SiteConfig(ChromiumConfig):
    """A shop's encyclopedia of linked pages, for made tasks (docs/synthesis.md)."""

    skin: Literal["chromium", "drawn"] = "chromium"
    """`chromium`: pages in a browser. `drawn`: pages drawn in this process without a browser, for tests."""
    site_seed: Whole = 0
    """Seed of the site. Tasks made from one site do not fit another."""
    entities: Annotated[int, Field(ge=60, le=200)] = 96
    """Number of pages of products, makers, designers and cities."""


class SiteEnvironment(ChromiumEnvironment[SiteConfig]):
    """Four tasks of its own, and those that are made from it."""

    section = SiteConfig
    verifier = "state"
    sandbox_class = SiteSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the site's own tasks."""
        return ENTRIES

    @property
    def lineage(self) -> str:
        """Returns this project's lineage, with a part that identifies the site."""
        return f"flywheel site {self.config.site_seed}/{self.config.entities}"

    @property
    def world(self) -> World:
        """Returns the world of the site and its state."""
        return world_of(self._site)

    @property
    def layout(self) -> Layout:
        """Returns the layout of the pages."""
        return SiteLayout(self._site)

    @property
    def _site(self) -> Site:
        return site_of(self.config.site_seed, self.config.entities)

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox with the site in a page."""
        return ChromiumSiteSandbox(browser, self.config, self._site)

    def host(self) -> Host:
        """Makes the host: a browser, or a host without a process for drawn pages."""
        if self.config.skin == "drawn":
            return NoHost(lambda: DrawnSiteSandbox(self.config, self._site))
        return super().host()

    def probes(self) -> Sequence[Probe]:
        """Checks the browser, unless pages are drawn."""
        return () if self.config.skin == "drawn" else super().probes()


def instance(template: str, site: Site, seed: int) -> tuple[str, Setup]:
    """Returns the instruction and the setup of a task, which starts one or two clicks from its goal. A policy that also
    changes another field (a cart, a note, an answer) gets no reward, as in made tasks."""
    words, page, wanted = _drawn_task(template, site, seed)
    initial = {**START, "page": page}
    checks = tuple(
        FieldCheck.model_validate({"field": name, "value": value, "exact": name == "note"})
        for name, value in wanted.items()
    )
    guards = world_of(site).guards(checks, initial)
    return words, Setup.model_validate({"initial": initial, "checks": (*checks, *guards)})


def _drawn_task(template: str, site: Site, seed: int) -> tuple[str, str, dict[str, object]]:
    """Draws the instruction, the start page, and the goal values of the fields."""
    chance = random.Random(f"{template} {seed}")
    entity = chance.choice(site.entities)
    linked = {one.key: one for one in site.entities}
    words = ENTRIES[template].instruction
    if template == ROOTS["open"].task:
        while not entity.links:
            entity = chance.choice(site.entities)
        target = linked[chance.choice(sorted(entity.links.values()))]
        return words.format(target.title), entity.key, {"page": target.key}
    if template == ROOTS["answer"].task:
        name, value = chance.choice(sorted(entity.values.items()))
        return words.format(name, entity.title), entity.key, {"answer": str(value), "submitted": True}
    if template == ROOTS["cart"].task:
        entity, count = chance.choice(site.of_kind(site.goods)), chance.choice((1, 1, 2))
        return words.format(count, entity.title), entity.key, {"cart": {entity.key: count}}
    text = chance.choice(NOTES)
    return words.format(text), "cart", {"note": text}
