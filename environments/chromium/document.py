"""Run external documents as tasks: the sandbox reads a document's verdict, and `doctor` checks the documents."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.in_page import SCRIPT as IN_PAGE
from environments.chromium.in_page import InPageReward, InPageSandbox
from environments.chromium.page import ScriptFailure
from environments.verifier import Verifier
from schemas.action import Click
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, Probe, SandboxFailure, TrajectoryFailure, all_of
from schemas.observation import Observation

T = TypeVar("T")
Options = TypeVar("Options", bound=ChromiumConfig)
SCRIPT = IN_PAGE + Path(__file__).with_name("document.js").read_text()
"""Script that runs before the document's own scripts; the environment's own script, which defines `__page.verdict`,
follows."""
SEEDS = (1, 2, 3, 4)
"""Seeds with which `doctor` starts a page; a page with two variants may repeat one a few times."""
_ADVANCE = """(async () => {
  const turn = () => new Promise((done) => setTimeout(done, 0));
  const page = () => { try { return world.__page; } catch { return undefined; } };
  await turn();
  await page()?.advance(MS);
  await turn();
  return page()?.verdict() ?? null;
})()"""
"""Script of the stage, which stays when the page navigates. It waits one event loop turn before and after the page's
time, so that queued events of the browser, such as `hashchange`, are delivered."""


class DocumentSandbox(InPageSandbox):
    """A sandbox for a document that is a task.

    Args:
        browser: the browser that opens it.
        config: time limits.
    """

    def __init__(self, browser: Browser, config: EnvironmentConfig) -> None:
        super().__init__(browser, config)
        self._file = Path()

    async def _opened_at(self, file: Path, seed: int, start: str) -> Any:
        """Opens a file, with its randomness seeded by `seed` while it loads, and evaluates the JavaScript `start` in
        it."""
        self._file = file
        return await self._read_reward(self._open(file.as_uri(), start, f"world.__page.load({seed})"))

    def _judged(self, answer: Any) -> tuple[bool, Any]:
        """Converts the answer of the page's `verdict` to whether the task is done, and its raw reward."""
        return answer

    async def _advance(self, passed_ms: int) -> None:
        answer = await self._read_reward(self._page.evaluate(_ADVANCE.replace("MS", str(passed_ms))))
        if answer is None:
            raise SandboxFailure("the page went to another document: a task is one")
        self.verdict = self._judged(answer)

    async def _read_reward(self, answer: Awaitable[T]) -> T:
        """Awaits an answer of the page. An exception in the answer is a failure of the task, which is its own verifier,
        and not of the sandbox."""
        try:
            return await answer
        except ScriptFailure as failure:
            output = failure.text.partition("\n    at ")[0].removeprefix("Error: ")
            raise TrajectoryFailure("verifier", f"{self._file.name}: {output}") from failure


class DocumentEnvironment(ChromiumEnvironment[Options]):
    """Documents that the config or a catalog names as tasks."""

    reward: Verifier = InPageReward()
    """Verifier that reads the documents' rewards."""

    @property
    @abstractmethod
    def pages(self) -> Mapping[str, Path]:
        """Returns the absolute path of each template's file."""

    @property
    def page_key(self) -> str:
        """Returns the config key of the pages' folder."""
        return f"environments.{self.name}.folder"

    def probes(self) -> Sequence[Probe]:
        """Checks that every task has a page that starts, looks the same twice and has a reward; reports pages that do
        not depend on the seed."""
        return (
            Probe("pages", self._files),
            *super().probes(),
            Probe("pages start", lambda: asyncio.run(self._starts()), required=False),
        )

    def _files(self) -> str:
        hint = f"Put the page there, or set `{self.page_key}`."
        missing = [
            FlywheelError(f"`environments.{self.name}.tasks.{template}`: there is no {file}.", hint)
            for template, file in self.pages.items()
            if not file.is_file()
        ]
        if missing:
            raise all_of(missing)
        return f"{len(self.pages)} there"

    async def _starts(self) -> str:
        """Starts every page; raises FlywheelError with a list of problems."""
        still: list[str] = []
        wrong: list[FlywheelError] = []
        browser = await Browser.launch(self._path())
        try:
            for template in self.pages:
                try:
                    still += [template] if await self._starts_alike(browser, template) else []
                except FlywheelError as error:
                    wrong.append(error)
                    await browser.end()  # so that no page affects the next one
                    browser = await Browser.launch(self._path())
        finally:
            await browser.end()
        if wrong:
            raise all_of(wrong)
        note = f"; check the pages that are the same for every seed: {', '.join(still)}" if still else ""
        return f"each page starts, and the same seed shows the same screen{note}"

    async def _starts_alike(self, browser: Browser, template: str) -> bool:
        """Checks whether a page is the same for several seeds; raises FlywheelError if two starts with one seed
        differ."""
        first = await self._seen(browser, template, SEEDS[0])
        if first != await self._seen(browser, template, SEEDS[0]):
            raise FlywheelError(
                f"{self.pages[template]} looks different when it starts again with the same seed.",
                "Derive all random values from the seed that `start(seed)` gets.",
            )
        for seed in SEEDS[1:]:
            if await self._seen(browser, template, seed) != first:
                return False
        return True

    async def _seen(self, browser: Browser, template: str, seed: int) -> Observation:
        """Returns a page's first screen and instruction, after its reward was read once before and once after an
        action."""
        sandbox, file = self.sandbox(browser), self.pages[template]
        try:
            await sandbox.start(self.task(template), seed)
            seen = await sandbox.observe()
            await sandbox.verify(self.reward)
            await sandbox.perform(Click(x=0.5, y=0.5))
            await sandbox.verify(self.reward)
        except TrajectoryFailure as error:
            output = error.reason.removeprefix(f"{file.name}: ")
            raise FlywheelError(f"{file}: {output}", "Open it by hand.") from error
        finally:
            await sandbox.stop()
        return seen
