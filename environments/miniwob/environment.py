"""Run MiniWoB++ (Liu et al., ICLR 2018): its 130 tasks without a server, and this project's practice page.

The clock of a page advances only with actions. Drop-down lists open inside the page, so tasks with such lists look
slightly different from the published MiniWoB++.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.in_page import SCRIPT, InPageSandbox
from environments.chromium.page import PageKind
from environments.sandbox import Sandbox, StatefulSandbox
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, SandboxFailure
from schemas.tables.task import GuiTask, TaskEntry
from schemas.world import Setup, State, StateField, World, in_turn

WIDTH, HEIGHT = 160, 210
PRACTICE = "practice"
"""This project's own page (`practice.html`), with MiniWoB++'s style and scripts."""


@cache
def html_folder() -> Path:
    """Folder of the installed MiniWoB++'s pages; raises FlywheelError if it is not installed."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise FlywheelError("MiniWoB++ is not installed.", "Run `pip install miniwob`.")
    return Path(spec.origin).parent / "html" / "miniwob"


def page_of(template: str) -> str:
    """Returns the address of a task's page."""
    if template == PRACTICE:
        return Path(__file__).with_name("practice.html").as_uri()
    return (html_folder() / f"{template}.html").as_uri()


@cache
def page_kind(width: int = WIDTH, height: int = HEIGHT, scripts: tuple[str, ...] = ("page.js",)) -> PageKind:
    """Returns the settings of pages of a size in pixels, with MiniWoB++'s style and scripts of this folder."""
    ground = (html_folder().parent / "core" / "core.css").as_uri()
    own = [Path(__file__).with_name(name).read_text() for name in scripts]
    return PageKind(width, height, ground, "".join((SCRIPT, *own)))


class MiniwobSandbox(InPageSandbox, StatefulSandbox):
    """A sandbox for one MiniWoB++ task or a sequence of tasks in a page; the screen is a task's 160x210 pixels."""

    def __init__(self, browser: Browser, config: EnvironmentConfig) -> None:
        super().__init__(browser, config)
        self.kind = page_kind()
        self._seed = 0
        self._parts: list[str] = []
        self._rewards: list[float] = []

    @property
    def state(self) -> State:
        """Returns the names of a task sequence, and the rewards of its finished tasks."""
        return {"parts": " ".join(self._parts), "rewards": list(self._rewards)}

    @property
    def over(self) -> bool:
        """Whether all tasks of the sequence are done, or a task failed."""
        return len(self._rewards) == len(self._parts) or any(reward < 1.0 for reward in self._rewards)

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._seed = seed
        if task.setup is None:
            self._instruction = await self._begin(task.template)
            return
        self.setup = Setup.model_validate_json(task.setup)
        parts, rewards = self.setup.initial["parts"], self.setup.initial["rewards"]
        assert isinstance(parts, str) and isinstance(rewards, list)
        self._parts, self._rewards = parts.split(), [float(str(one)) for one in rewards]
        self._instruction = in_turn([await self._begin(part) for part in self._parts])
        await self._begin(self._parts[min(len(self._rewards), len(self._parts) - 1)])

    async def _begin(self, template: str) -> str:
        start = f"world.__wob.start({self._seed}, notes)"
        ready, utterance, self.verdict = await self._open(page_of(template), start)
        if not ready:
            raise SandboxFailure(f"{template} does not get ready")
        return utterance

    async def _advance(self, passed_ms: int) -> None:
        self.verdict = await self._page.evaluate(f"world.__wob.advance({passed_ms})")
        if self.setup is not None and self.verdict[0] and not self.over:
            self._rewards.append(float(self.verdict[1]))
            if not self.over:
                await self._begin(self._parts[len(self._rewards)])


FIELDS = (
    StateField(name="parts", kind="parts", about="the tasks that are rolled out one after the other"),
    StateField(name="rewards", kind="scores", about="the rewards of those that are done, in order"),
)


class MiniwobConfig(ChromiumConfig):
    """MiniWoB++ (Liu et al., ICLR 2018) in pages of headless browsers."""


class MiniwobEnvironment(ChromiumEnvironment[MiniwobConfig]):
    """Web tasks of a few steps on screens of 160x210 pixels, each with a reward of its own."""

    section = MiniwobConfig
    license = "MIT (Farama Foundation)"
    verifier = "miniwob"
    sandbox_class = MiniwobSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the tasks of `tasks.toml`."""
        return catalog_entries()

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
def catalog_entries() -> Mapping[str, TaskEntry]:
    """Reads the tasks of `tasks.toml` by template."""
    entries = tomllib.loads(Path(__file__).with_name("tasks.toml").read_text())
    return {template: TaskEntry.model_validate(entry) for template, entry in entries.items()}
