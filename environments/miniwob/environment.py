"""Run MiniWoB++ as an environment: its 130 tasks without a server, and this project's practice page."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.miniwob.sandbox import MiniwobSandbox
from environments.sandbox import Sandbox
from schemas.tables.task import TaskEntry
from schemas.world import StateField, World

FIELDS = (
    StateField(name="parts", kind="parts", about="the tasks that are rolled out one after the other"),
    StateField(name="rewards", kind="scores", about="the rewards of those that are done, in order"),
)


class MiniwobConfig(ChromiumConfig):
    """MiniWoB++ (Liu et al., ICLR 2018) in pages of headless browsers."""


class MiniwobEnvironment(ChromiumEnvironment[MiniwobConfig]):
    """Web tasks of a few steps on screens of 160x210 pixels, each with a reward of its own."""

    section = MiniwobConfig
    verifier = "miniwob"
    sandbox_class = MiniwobSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the tasks of `tasks.toml`."""
        return _entries()

    @property
    def world(self) -> World:
        """Returns a world of sequences of tasks; a seed decides the content of pages, so no other state can be set."""
        parts = {name: entry.instruction for name, entry in self.entries.items()}
        return World(fields=FIELDS, start={"parts": "", "rewards": []}, parts=parts)

    @property
    def lineage(self) -> str:
        """Returns the version of the installed MiniWoB++."""
        try:
            return f"MiniWoB++ {version('miniwob')}"
        except PackageNotFoundError:
            return "MiniWoB++"

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox for a page."""
        return MiniwobSandbox(browser, self.config)


@cache
def _entries() -> Mapping[str, TaskEntry]:
    entries = tomllib.loads(Path(__file__).with_name("tasks.toml").read_text())
    return {template: TaskEntry.model_validate(entry) for template, entry in entries.items()}
