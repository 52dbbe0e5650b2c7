"""Run the user's own HTML pages as an environment: a file is a task, which sets itself up and verifies itself.

A page runs in a sandbox, sets itself up from a seed, and reports its reward.
"""

from collections.abc import Mapping
from pathlib import Path

from common.text import counted
from environments.chromium.browser import Browser
from environments.chromium.document import SCRIPT, DocumentEnvironment, DocumentSandbox
from environments.chromium.environment import ChromiumConfig
from environments.chromium.page import PageKind
from environments.sandbox import Sandbox
from schemas.config.section import Count
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError
from schemas.tables.task import GuiTask, TaskEntry

_SCRIPT = SCRIPT + Path(__file__).with_name("page.js").read_text()


class HtmlSandbox(DocumentSandbox):
    """A sandbox for one page of a folder.

    Args:
        browser: the browser that opens it.
        config: time limits.
        folder: absolute folder of the pages; a template's page is the file of the same name.
        size: width and height of the screen in pixels.
    """

    def __init__(self, browser: Browser, config: EnvironmentConfig, folder: Path, size: tuple[int, int]) -> None:
        super().__init__(browser, config)
        self._folder = folder
        self.kind = PageKind(*size, f"{folder.as_uri()}/", _SCRIPT)

    async def _start(self, task: GuiTask, seed: int) -> None:
        file = self._folder / f"{task.template}.html"
        self._instruction, self.verdict = await self._opened_at(file, seed, f"world.__page.start({seed}, notes)")


class HtmlConfig(ChromiumConfig):
    """Your own HTML pages (docs/your-task.md)."""

    folder: str = "pages"
    """Folder of the pages, relative to the working directory of the command."""
    width: Count = 160
    """Width of the screen, in pixels."""
    height: Count = 210
    """Height of the screen, in pixels."""
    tasks: dict[str, TaskEntry] = {}  # noqa: RUF012  (pydantic copies it)
    """Tasks by template: `NAME` is the page `NAME.html`."""


class HtmlEnvironment(DocumentEnvironment[HtmlConfig]):
    """The pages of a folder that the config names as tasks."""

    section = HtmlConfig
    verifier = "html"
    sandbox_class = HtmlSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the tasks of the config."""
        return self.config.tasks

    @property
    def pages(self) -> Mapping[str, Path]:
        """Returns the file of each template."""
        return {template: self._folder / f"{template}.html" for template in self.entries}

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox for a page."""
        return HtmlSandbox(browser, self.config, self._folder, (self.config.width, self.config.height))

    @property
    def _folder(self) -> Path:
        return Path(self.config.folder).expanduser().absolute()

    def _files(self) -> str:
        if not self.entries:
            raise FlywheelError(
                f"`environments.{self.name}.tasks` names no page.",
                f"Write, for example, [environments.{self.name}.tasks.NAME] with its instruction, for NAME.html.",
            )
        super()._files()
        return f"{counted(len(self.entries), 'page')} in {self._folder}"
