"""Run games as an environment: pages with a score, the built-in ones and the user's own.

A game runs in a page: a seed and a level start it, and its JavaScript gives score, level and end.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from environments.chromium.browser import Browser
from environments.chromium.document import SCRIPT, DocumentEnvironment, DocumentSandbox
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.in_page import written
from environments.chromium.page import PageKind
from environments.verifier import OwnOutcome
from schemas.action import Action
from schemas.config.section import Count, Positive, Section
from schemas.config.sections import EnvironmentConfig
from schemas.failure import Probe, TrajectoryFailure
from schemas.observation import Outcome
from schemas.tables.task import GuiTask, TaskEntry

PAGES = Path(__file__).with_name("pages")
"""Folder of the built-in games."""
DIFFICULTIES = ("easy", "medium", "hard")
"""Tags of the levels."""


class Reads(Section):
    """JavaScript expressions over the page's own globals."""

    start: str = "game.start(seed, level)"
    """Sets the game up from the variables `seed` and `level`; may be a promise. A string result is the instruction.
    `null` for a page that starts by itself."""
    score: str = "game.score"
    """A number, in the game's own points."""
    level: str = "game.level"
    """The current level; `null` if there is none."""
    over: str = "game.over"
    """Whether the score is final: exactly true, or anything else."""
    hint: str = "game.hint?.()"
    """A scripted player's next action, as an object; `null` if there is none."""


class GameTask(TaskEntry):
    """One game at one level."""

    page: Annotated[str, Field(min_length=1)]
    """Its HTML file, relative to the working directory of the command. All files that it loads must be in the same
    folder."""
    level: Count = 1
    """The level passed to `reads.start`: a harder one is another task."""
    reference: Positive
    """The score with a reward of 1."""
    source: Annotated[str, Field(min_length=1)]
    """Source of the reference, such as the player and the number of games."""
    graded: bool = True
    """Whether groups learn from the reward itself, or from success alone."""
    width: Count = 240
    """Width of the screen, in pixels."""
    height: Count = 280
    action_ms: Count = 250
    """Milliseconds of the game's time that an action takes."""
    wait_ms: Count = 250
    """Milliseconds of the game's time that `wait` takes."""
    reads: Reads = Reads()

    @property
    def file(self) -> Path:
        """The page, absolute."""
        return Path(self.page).expanduser().absolute()


@cache
def built_in() -> Mapping[str, GameTask]:
    """The games of `games.toml`: `NAME-1` is the page `NAME.html` at its first level, whose own keys replace the
    game's."""
    games = tomllib.loads(Path(__file__).with_name("games.toml").read_text())
    return {
        f"{name}-{level}": _task(name, level, game, own)
        for name, game in games.items()
        for level, own in enumerate(game["levels"], 1)
    }


def _task(name: str, level: int, game: Mapping[str, Any], own: Mapping[str, float]) -> GameTask:
    fields = {key: value for key, value in game.items() if key != "levels"}
    fields |= {"page": str(PAGES / f"{name}.html"), "level": level, "lineage": "flywheel games"}
    return GameTask.model_validate({**fields, "tags": (name, *game["tags"], DIFFICULTIES[level - 1]), **own})


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

    async def _hint(self) -> Action | None:
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
