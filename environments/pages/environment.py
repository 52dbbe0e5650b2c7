"""Run generated pages as an environment: a layout is a task, and a seed makes a page with widgets and a task.

A script makes the page, knows the solution, and computes the reward. Pages of held-out layouts have only held-out words
and fonts, and often a held-out widget.
"""

import json
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from environments.chromium.browser import Browser
from environments.chromium.document import SCRIPT, DocumentSandbox
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.in_page import InPageReward
from environments.chromium.page import PageKind
from environments.pages import catalog
from environments.pages.fonts import installed
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.config.sections import EnvironmentConfig
from schemas.failure import Probe
from schemas.tables.task import GuiTask, TaskEntry

FOLDER = Path(__file__).parent
PAGE = FOLDER / "page.html"
SCAN = SCRIPT + (FOLDER.parent / "html" / "page.js").read_text() + (FOLDER / "scan.js").read_text()
"""Script of a page, which describes what it shows (`scan.js`)."""
MAX_STEPS = 16
HOVERED = 0.2
"""Share of pages at whose first screen the pointer is over the page."""


class PagesSandbox(DocumentSandbox):
    """A sandbox for one generated page.

    Args:
        browser: the browser that opens it.
        config: time limits.
        size: width and height of the screen in pixels; None for a size that follows from the seed.
    """

    def __init__(self, browser: Browser, config: EnvironmentConfig, size: tuple[int, int] | None) -> None:
        super().__init__(browser, config)
        self._size = size

    async def scan(self) -> dict[str, Any]:
        """Returns what the browser knows of the screen (`scan.js`): `elements`, `states`, `lines`, the `change` since
        the previous scan, and the solution's next `action` with its `target`, an index in the elements."""
        return await self._read_reward(self._page.evaluate("world.__page.scan()"))

    async def about(self) -> dict[str, Any]:
        """Returns the page's `theme`, `font`, `px` (size of the text), `widgets`, and those of the task (`asked`)."""
        return await self._read_reward(self._page.evaluate("world.__page.about()"))

    async def _start(self, task: GuiTask, seed: int) -> None:
        width, height = self._size or size_of(task.template, seed)
        self.kind = PageKind(width, height, f"{FOLDER.as_uri()}/", SCAN)
        about = json.dumps(parts_of(task.template, seed))
        start = f"(world.about = {about}, world.__page.start({seed}, notes))"
        self._instruction, self.verdict = await self._opened_at(PAGE, seed, start)
        chance = random.Random(f"pointer {task.template} {seed}")
        if chance.random() < HOVERED:
            await self._page.ready()
            await self._page.input([self._mouse("mouseMoved", chance.random(), chance.random())])


def size_of(layout: str, seed: int) -> tuple[int, int]:
    """Returns the width and height of a page's screen in pixels."""
    return random.Random(f"size {layout} {seed}").choices(list(catalog.SIZES), list(catalog.SIZES.values()))[0]


def parts_of(layout: str, seed: int) -> dict[str, Any]:
    """Returns the parts that a page may have, by name; the page chooses among them by its seed."""
    held_out = layout in catalog.LAYOUTS_HELD_OUT
    fonts = [font for font in catalog.FONTS if (font in catalog.FONTS_HELD_OUT) == held_out]
    widgets = [*catalog.WIDGETS, *(catalog.WIDGETS_HELD_OUT if held_out else ())]
    favoured = catalog.WIDGETS_HELD_OUT if held_out else ()
    parts = {"widgets": widgets, "favoured": favoured, "fonts": fonts, "themes": catalog.THEMES}
    return {"layout": layout, "seed": seed, "heldOut": held_out, **parts}


class PagesConfig(ChromiumConfig):
    """Generated pages with tasks of one to six steps (docs/pretrain.md)."""

    width: Annotated[int, Field(ge=160, le=1280)] = 160
    """Width of the screen, in pixels."""
    height: Annotated[int, Field(ge=210, le=800)] = 210
    """Height of the screen, in pixels."""
    sized: bool = True
    """Give every screen this size. If false, the size of a screen follows from the seed, as in `pretrain render`."""


class PagesEnvironment(ChromiumEnvironment[PagesConfig]):
    """A task for each layout. The tag `held_out` marks layouts that `pretrain render` uses for tests only."""

    section = PagesConfig
    verifier = "pages"
    reward: Verifier = InPageReward()
    """Verifier that reads the pages' rewards."""
    sandbox_class = PagesSandbox
    origin = f"flywheel {catalog.VERSION}"

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns a task for each layout."""
        return _entries()

    def probes(self) -> tuple[Probe, ...]:
        """Checks the browser, and that all fonts are installed."""
        return (*super().probes(), Probe("fonts", installed))

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox for a page."""
        return PagesSandbox(
            browser, self.config, (self.config.width, self.config.height) if self.config.sized else None
        )


@cache
def _entries() -> Mapping[str, TaskEntry]:
    tags = {layout: ("pages",) for layout in catalog.LAYOUTS}
    tags |= {layout: ("pages", "held_out") for layout in catalog.LAYOUTS_HELD_OUT}
    return {layout: TaskEntry(instruction="{}", tags=tag, max_steps=MAX_STEPS) for layout, tag in tags.items()}
