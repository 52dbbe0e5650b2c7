"""Define a game's settings: its page, the expressions that read it, and the reference of its score."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from schemas.config.section import Count, Positive, Section
from schemas.tables.task import TaskEntry

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
