"""Run games as an environment: pages with a score, the built-in ones and the user's own.

A game runs in a page: a seed and a level start it, and its JavaScript gives score, level and end.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from environments.chromium.browser import Browser
from environments.chromium.document import SCRIPT, DocumentEnvironment, DocumentSandbox
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.in_page import written
from environments.chromium.page import PageKind
from environments.games.game import GameTask, built_in
from environments.verifier import OwnOutcome
from schemas.action import Action
from schemas.check import Probe
from schemas.config.sections import EnvironmentConfig
from schemas.failure import TrajectoryFailure
from schemas.observation import Outcome
from schemas.tables.task import GuiTask

_ACTIONS: TypeAdapter[Action] = TypeAdapter(Action)
_SCRIPT = SCRIPT + Path(__file__).with_name("page.js").read_text()


@dataclass(frozen=True, slots=True)
class GameState:
    """The state that a game reports."""

    over: bool
    score: float
    """Score in the game's own points."""
    level: Any
    """The current level, as the game names it; None if it has none."""


class GameSandbox(DocumentSandbox):
    """A sandbox for one game.

    Args:
        browser: the browser that opens it.
        config: time limits.
        games: games by template.
    """

    game: GameTask
    """The started game."""

    def __init__(self, browser: Browser, config: EnvironmentConfig, games: Mapping[str, GameTask]) -> None:
        super().__init__(browser, config)
        self._games = games
        self.reading = GameState(over=False, score=0.0, level=None)

    @property
    def reward(self) -> float:
        """Returns the score so far as a share of the reference, in [0, 1]."""
        return min(1.0, max(0.0, self.reading.score / self.game.reference))

    async def outcome(self) -> Outcome:
        """Returns the outcome from the game's report after the last action."""
        return Outcome(done=self.reading.over, reward=self.reward, counts=True)

    async def hint(self) -> Action | None:
        """Returns a scripted player's next action; None if the game has no such player, or the player has nothing to
        do."""
        answer = await self._read_reward(self._page.evaluate("world.__page.hint()"))
        return None if answer is None else _ACTIONS.validate_python(answer)

    async def _start(self, task: GuiTask, seed: int) -> None:
        self.game = game = self._games[task.template]
        self.kind = PageKind(game.width, game.height, f"{game.file.parent.as_uri()}/", _SCRIPT)
        self.action_ms, self.wait_ms = game.action_ms, game.wait_ms
        start = f"world.__page.play({seed}, {game.level}, {json.dumps(game.reads.model_dump())}, notes)"
        answer, verdict = await self._opened_at(game.file, seed, start)
        self._instruction = answer or task.instruction
        self.verdict = self._judged(verdict)

    def _judged(self, answer: Any) -> tuple[bool, Any]:
        over, score, level = answer
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise TrajectoryFailure(
                "verifier", f"{self._file.name}: score, {self.game.reads.score}, is {written(score)}"
            )
        self.reading = GameState(over, float(score), level)
        return over, self.reward


class GameScore(OwnOutcome):
    """Rewards the score as a fraction of the reference. An unfinished game's score counts, too."""

    reads = GameSandbox


class GamesConfig(ChromiumConfig):
    """Games in pages (docs/games.md)."""

    tasks: dict[str, GameTask] = {}  # noqa: RUF012  (pydantic copies it)
    """Your own games by template, in addition to the built-in games. A game with a built-in name replaces that game."""


class GamesEnvironment(DocumentEnvironment[GamesConfig]):
    """The built-in games and those that the config names."""

    section = GamesConfig
    verifier = "games"
    sandbox_class = GameSandbox
    reward = GameScore()

    @property
    def entries(self) -> Mapping[str, GameTask]:
        """Returns tasks by template; a built-in game's template ends with its level."""
        return {**built_in(), **self.config.tasks}

    @property
    def pages(self) -> Mapping[str, Path]:
        """Returns the pages of the user's own games, which `doctor` opens."""
        return {template: entry.file for template, entry in self.config.tasks.items()}

    @property
    def page_key(self) -> str:
        """Returns the config key of each game's page."""
        return f"environments.{self.name}.tasks.NAME.page"

    def probes(self) -> Sequence[Probe]:
        """Checks the browser, and that the user's own games start, look the same twice and have a score."""
        return super().probes() if self.config.tasks else ChromiumEnvironment.probes(self)

    def sandbox(self, browser: Browser) -> GameSandbox:
        """Makes a sandbox for a game."""
        return GameSandbox(browser, self.config, self.entries)
