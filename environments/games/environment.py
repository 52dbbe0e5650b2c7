"""Run games as an environment: pages with a score, the built-in ones and the user's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from environments.chromium.browser import Browser
from environments.chromium.document import DocumentEnvironment
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.games.game import GameTask, built_in
from environments.games.sandbox import GameSandbox, GameScore
from schemas.check import Probe


class GamesConfig(ChromiumConfig):
    """Games in pages (docs/games.md)."""

    tasks: dict[str, GameTask] = {}  # noqa: RUF012  (pydantic copies it)
    """Your own games by template, added to the built-in ones; one of the same name replaces a built-in game."""


class GamesEnvironment(DocumentEnvironment[GamesConfig]):
    """The built-in games and those that the config names."""

    section = GamesConfig
    verifier = "games"
    sandbox_class = GameSandbox
    reward = GameScore()

    @property
    def entries(self) -> Mapping[str, GameTask]:
        """Tasks by template; a built-in game's template ends with its level."""
        return {**built_in(), **self.config.tasks}

    @property
    def pages(self) -> Mapping[str, Path]:
        """Pages of the user's own games, which `doctor` opens."""
        return {template: entry.file for template, entry in self.config.tasks.items()}

    @property
    def page_key(self) -> str:
        """Each game's own."""
        return f"environments.{self.name}.tasks.NAME.page"

    def probes(self) -> Sequence[Probe]:
        """Checks the browser, and that the user's own games start, look the same twice and have a score."""
        return super().probes() if self.config.tasks else ChromiumEnvironment.probes(self)

    def sandbox(self, browser: Browser) -> GameSandbox:
        """A page that a game is opened in."""
        return GameSandbox(browser, self.config, self.entries)
