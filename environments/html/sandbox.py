"""A page of the user's in a sandbox: the page sets itself up by a seed and says what reward it has come to."""

from collections.abc import Awaitable
from functools import cache
from pathlib import Path
from typing import TypeVar

from environments.chromium.browser import Browser
from environments.chromium.in_page import SCRIPT, InPageSandbox
from environments.chromium.page import PageKind, ScriptFailure
from schemas.config.sections import EnvironmentConfig
from schemas.failure import SandboxFailure, TrajectoryFailure
from schemas.tables.task import GuiTask

T = TypeVar("T")
_ADVANCE = """(async () => {
  const turn = () => new Promise((done) => setTimeout(done, 0));
  const html = () => { try { return world.__html; } catch { return undefined; } };
  await turn();
  await html()?.advance(MS);
  await turn();
  return html()?.verdict() ?? null;
})()"""
"""Of the stage, which stays when the page goes elsewhere. The browser's own turns, before and after the page's time,
bring the events that it has queued, such as `hashchange`."""


class HtmlSandbox(InPageSandbox):
    """One page of a folder.

    Args:
        browser: where it is opened.
        config: time limits.
        folder: where the pages are, absolute; a task is the file of its template's name.
        size: width and height of the screen in pixels.
    """

    def __init__(self, browser: Browser, config: EnvironmentConfig, folder: Path, size: tuple[int, int]) -> None:
        super().__init__(browser, config)
        self._folder = folder
        self._file = folder
        self.width, self.height = size

    @property
    def kind(self) -> PageKind:
        """Pages of this size, whose relative addresses start from the folder."""
        return PageKind(self.width, self.height, f"{self._folder.as_uri()}/", _script())

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._file = self._folder / f"{task.template}.html"
        started, loaded = f"world.__html.start({seed}, notes)", f"world.__html.load({seed})"
        self._instruction, self.verdict = await self._told(self._open(self._file.as_uri(), started, loaded))

    async def _advance(self, passed_ms: int) -> None:
        answer = await self._told(self._page.evaluate(_ADVANCE.replace("MS", str(passed_ms))))
        if answer is None:
            raise SandboxFailure("the page went to another document: a task is one")
        self.verdict = answer

    async def _told(self, answer: Awaitable[T]) -> T:
        """What the page answers; where it throws, the box is well and the task, its own verifier, is not."""
        try:
            return await answer
        except ScriptFailure as failure:
            said = failure.said.partition("\n    at ")[0].removeprefix("Error: ")
            raise TrajectoryFailure("verifier", f"{self._file.name}: {said}") from failure


@cache
def _script() -> str:
    return SCRIPT + Path(__file__).with_name("page.js").read_text()
