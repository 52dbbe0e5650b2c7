"""Play the solutions of generated pages, and note what the browser knows of each screen."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from environments.pages.catalog import FAMILY, LAYOUTS, LAYOUTS_HELD_OUT, VERSION
from environments.pages.environment import PagesEnvironment, PagesSandbox, size_of
from environments.pool import SandboxPool
from schemas.action import action_of, to_json
from schemas.failure import FlywheelError
from schemas.observation import Element, Observation, elements_json
from schemas.tables.page import PageScreen, PageSplit

SPLITS: Mapping[PageSplit, int] = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
"""First seed of each split; `FAMILY` is the distance between the seeds of two values of `seed`."""
MOST_ACTIONS = 12


@dataclass(frozen=True, slots=True)
class PageKey:
    """One page."""

    split: PageSplit
    layout: str
    seed: int

    @property
    def page_id(self) -> str:
        """Returns the page's id, which depends on the generator's version."""
        return hashlib.sha256(f"{VERSION} {self.split} {self.layout} {self.seed}".encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Returns the page's name for messages."""
        return f"page {self.page_id} (layout {self.layout}, seed {self.seed}, split {self.split})"

    @property
    def size(self) -> tuple[int, int]:
        """Returns the width and height of the screen in pixels."""
        return size_of(self.layout, self.seed)


@dataclass(frozen=True, slots=True)
class Rendered:
    """One screen of a page."""

    row: PageScreen
    png: bytes


def key_of(split: PageSplit, number: int, seed: int) -> PageKey:
    """Returns page `number` of a split, for a `seed` of the config. The layouts take turns."""
    layouts = LAYOUTS_HELD_OUT if split == "test" else LAYOUTS
    return PageKey(split, layouts[number % len(layouts)], SPLITS[split] + seed * FAMILY + number)


async def play(pool: SandboxPool, environment: PagesEnvironment, key: PageKey, generator: str) -> list[Rendered]:
    """Plays the solution of a page and returns its screens.

    Args:
        pool: pool with the environment.
        environment: the environment of the pages.
        key: the page.
        generator: name and version of the generator and of the browser, for the rows.

    Raises:
        FlywheelError: the page did not start, or gave no reward of 1 for its solution; the message has the page.
        SandboxFailure: the browser died.
    """
    async with pool.lease(environment.task(key.layout), key.seed) as sandbox:
        assert isinstance(sandbox, PagesSandbox)
        about = await sandbox.about()
        screens: list[Rendered] = []
        while True:
            shown = await sandbox.observe()
            scan = await sandbox.scan()
            if screens:
                screens[-1] = replace(screens[-1], row=screens[-1].row.model_copy(update={"change": scan["change"]}))
            last = scan["action"] is None
            reward = (await sandbox.verify(environment.reward)).reward if last else None
            row = _row(key, len(screens), shown, scan, about, reward, generator)
            screens.append(Rendered(row, shown.png))
            if last or len(screens) > MOST_ACTIONS:
                break
            await sandbox.perform(action_of(scan["action"]))
        if screens[-1].row.reward != 1.0:
            raise FlywheelError(
                f"The solution of {key.name} got the reward {screens[-1].row.reward} after {len(screens) - 1} actions.",
                "This is an error of the generator (environments/pages). Please report it with this line.",
            )
        return screens


def _row(
    key: PageKey,
    step: int,
    shown: Observation,
    scan: Mapping[str, Any],
    about: Mapping[str, Any],
    reward: float | None,
    generator: str,
) -> PageScreen:
    elements = [Element(name, kind, tuple(box), live, value) for name, kind, *box, live, value in scan["elements"]]
    return PageScreen(
        page_id=key.page_id,
        step=step,
        split=key.split,
        layout=key.layout,
        theme=about["theme"],
        font=about["font"],
        font_px=about["px"],
        widgets=about["widgets"],
        width=shown.width,
        height=shown.height,
        sha256=hashlib.sha256(shown.png).hexdigest(),
        elements=elements_json(elements),
        states=_json(scan["states"]),
        lines=_json(scan["lines"]),
        instruction=shown.instruction,
        action="" if scan["action"] is None else to_json(action_of(scan["action"])),
        target=scan["target"],
        change="",
        reward=reward,
        generator=generator,
    )


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
