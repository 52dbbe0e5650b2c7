"""HTML pages of the user's own as an environment: a file is a task, which sets itself up and verifies itself."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.in_page import InPageReward
from environments.html.sandbox import HtmlSandbox
from environments.sandbox import Sandbox
from schemas.action import Click
from schemas.check import Probe
from schemas.config.section import Count
from schemas.failure import FlywheelError, TrajectoryFailure
from schemas.observation import Observation
from schemas.tables.task import TaskEntry
from schemas.text import counted

SEEDS = (1, 2, 3, 4)
"""That `doctor` starts a page with; a page that draws one of two may do it alike a few times."""


class HtmlConfig(ChromiumConfig):
    """HTML pages of one's own (docs/your-task.md)."""

    folder: str = "pages"
    """Where they are; relative to where the command is started."""
    width: Count = 160
    """Of the screen, in pixels."""
    height: Count = 210
    tasks: dict[str, TaskEntry] = {}  # noqa: RUF012  (pydantic copies it)
    """By template: `NAME` is the page `NAME.html`."""


class HtmlEnvironment(ChromiumEnvironment[HtmlConfig]):
    """The pages of a folder that the config names as tasks."""

    section = HtmlConfig
    verifier = "html"
    sandbox_class = HtmlSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """As the config says."""
        return self.config.tasks

    def sandbox(self, browser: Browser) -> Sandbox:
        """A page that a task is opened in."""
        return HtmlSandbox(browser, self.config, self._folder, (self.config.width, self.config.height))

    def probes(self) -> Sequence[Probe]:
        """Whether every task has a page, and whether each starts, looks the same twice and has a reward; says which
        are the same for every seed."""
        return (
            Probe("pages", self._files),
            *super().probes(),
            Probe("pages start", lambda: asyncio.run(self._starts()), required=False),
        )

    @property
    def _folder(self) -> Path:
        return Path(self.config.folder).expanduser().absolute()

    def _files(self) -> str:
        if not self.entries:
            raise FlywheelError(
                f"`environments.{self.name}.tasks` names no page.",
                f"Write, for example, [environments.{self.name}.tasks.NAME] with its instruction, for NAME.html.",
            )
        for template in self.entries:
            if not (file := self._folder / f"{template}.html").is_file():
                raise FlywheelError(
                    f"`environments.{self.name}.tasks.{template}`: there is no {file}.",
                    f"Put the page there, or set `environments.{self.name}.folder`.",
                )
        return f"{counted(len(self.entries), 'page')} in {self._folder}"

    async def _starts(self) -> str:
        browser = await Browser.launch(self._path())
        try:
            still = [template for template in self.entries if await self._starts_alike(browser, template)]
        finally:
            await browser.close()
        note = f"; for every seed the same, if that is meant: {', '.join(still)}" if still else ""
        return f"each starts, and looks the same twice{note}"

    async def _starts_alike(self, browser: Browser, template: str) -> bool:
        """Whether it is the same for several seeds too; raises FlywheelError where it differs for one of them."""
        first = await self._seen(browser, template, SEEDS[0])
        if first != await self._seen(browser, template, SEEDS[0]):
            raise FlywheelError(
                f"{self._folder / template}.html looks different when it starts again with the same seed.",
                "Let the seed of window.task.start(seed) decide all that differs.",
            )
        for seed in SEEDS[1:]:
            if await self._seen(browser, template, seed) != first:
                return False
        return True

    async def _seen(self, browser: Browser, template: str, seed: int) -> Observation:
        """What it shows and asks at first, once it has told its reward before an action and after one."""
        sandbox = self.sandbox(browser)
        try:
            await sandbox.start(self.task(template), seed)
            seen = await sandbox.observe()
            await sandbox.verify(InPageReward())
            await sandbox.perform(Click(x=0.5, y=0.5))
            await sandbox.verify(InPageReward())
        except TrajectoryFailure as error:
            said = error.reason.removeprefix(f"{template}.html: ")
            raise FlywheelError(f"{self._folder / template}.html: {said}", "Open it by hand.") from error
        finally:
            await sandbox.stop()
        return seen
