"""Run a user's page in a sandbox: the page sets itself up from a seed and reports its reward."""

from functools import cache
from pathlib import Path

from environments.chromium.browser import Browser
from environments.chromium.document import SCRIPT, DocumentSandbox
from environments.chromium.page import PageKind
from schemas.config.sections import EnvironmentConfig
from schemas.tables.task import GuiTask


class HtmlSandbox(DocumentSandbox):
    """One page of a folder.

    Args:
        browser: the browser that opens it.
        config: time limits.
        folder: absolute folder of the pages; a task is the file of its template's name.
        size: width and height of the screen in pixels.
    """

    def __init__(self, browser: Browser, config: EnvironmentConfig, folder: Path, size: tuple[int, int]) -> None:
        super().__init__(browser, config)
        self._folder = folder
        self.width, self.height = size

    @property
    def kind(self) -> PageKind:
        """Pages of this size, whose relative addresses start from the folder."""
        return PageKind(self.width, self.height, f"{self._folder.as_uri()}/", _script())

    async def _start(self, task: GuiTask, seed: int) -> None:
        file = self._folder / f"{task.template}.html"
        self._instruction, self.verdict = await self._opened_at(file, seed, f"world.__page.start({seed}, notes)")


@cache
def _script() -> str:
    return SCRIPT + Path(__file__).with_name("page.js").read_text()
