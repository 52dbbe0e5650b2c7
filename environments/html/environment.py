"""Run the user's own HTML pages as an environment: a file is a task, which sets itself up and verifies itself."""

from collections.abc import Mapping
from pathlib import Path

from common.text import counted
from environments.chromium.browser import Browser
from environments.chromium.document import DocumentEnvironment
from environments.chromium.environment import ChromiumConfig
from environments.html.sandbox import HtmlSandbox
from environments.sandbox import Sandbox
from schemas.config.section import Count
from schemas.failure import FlywheelError
from schemas.tables.task import TaskEntry


class HtmlConfig(ChromiumConfig):
    """Your own HTML pages (docs/your-task.md)."""

    folder: str = "pages"
    """Their folder, relative to the working directory of the command."""
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
        """The tasks of the config."""
        return self.config.tasks

    @property
    def pages(self) -> Mapping[str, Path]:
        """The file of each template's name."""
        return {template: self._folder / f"{template}.html" for template in self.entries}

    def sandbox(self, browser: Browser) -> Sandbox:
        """A page that a task is opened in."""
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
