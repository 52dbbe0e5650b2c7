"""Run MiniWoB++ by the rules of BrowserGym's benchmark `miniwob` (arXiv 2412.05467), which published results follow.

Its 125 tasks, its viewport of 332 x 214, ten steps per episode, and a reward of 1 for any positive raw reward, else 0.
A time-out, which is a negative raw reward, therefore has a reward of 0. The instruction is given to the policy and is
no part of the screen. `docs/miniwob-all.md` lists the remaining differences.
"""

from collections.abc import Mapping
from functools import cache

from environments.chromium.browser import Browser
from environments.miniwob.environment import MiniwobEnvironment, MiniwobSandbox, catalog_entries, page_kind
from environments.sandbox import Sandbox
from schemas.config.sections import EnvironmentConfig
from schemas.tables.task import TaskEntry

VERSION = "0.14.3"
"""The version of BrowserGym whose rules these are."""
WIDTH, HEIGHT = 332, 214
MAX_STEPS = 10
OBSERVED_MS = 500
"""Milliseconds from an action to BrowserGym's next observation (`pre_observation_delay`)."""
NOT_INCLUDED = ("button-delay", "chase-circle", "hover-shape", "moving-items", "simon-says")
"""Tasks of MiniWoB++ 1.1.0 that BrowserGym does not register."""


class BrowserGymSandbox(MiniwobSandbox):
    """A sandbox for one task; the screen is BrowserGym's viewport."""

    action_ms = OBSERVED_MS

    def __init__(self, browser: Browser, config: EnvironmentConfig) -> None:
        super().__init__(browser, config)
        self.kind = page_kind(WIDTH, HEIGHT, ("page.js", "browsergym.js"))


class BrowserGymEnvironment(MiniwobEnvironment):
    """The 125 tasks of BrowserGym's `miniwob`, and the practice page at the same size."""

    sandbox_class = BrowserGymSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the tasks of `tasks.toml` that BrowserGym has, with its step limit."""
        return _entries()

    @property
    def lineage(self) -> str:
        """Returns the versions of MiniWoB++ and of the rules."""
        return f"{super().lineage}, rules of BrowserGym {VERSION}"

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox for a page."""
        return BrowserGymSandbox(browser, self.config)


@cache
def _entries() -> Mapping[str, TaskEntry]:
    limited = {"max_steps": MAX_STEPS}
    return {
        template: entry.model_copy(update=limited)
        for template, entry in catalog_entries().items()
        if template not in NOT_INCLUDED
    }
