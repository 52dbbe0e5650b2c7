"""The built-in games: what a random and a scripted player come to, normalised by each game's reference.

    python -m benchmarks.games [--short] [--level N] [--json PATH] [--picture PATH]

The random player is the explorer. The scripted player is the game's own `hint`, which sees more than the screen, such
as where the mines are: it shows that the game can be won by actions, not what a person or a policy can do. The
normalised score is 100 x score / reference; whose score the reference is stands with each game. Bars: the scripted
player beats the random one in every game and reaches every game's threshold in three of four trajectories, and the same
seed and actions come to the same score, end and pictures.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from PIL import Image

from benchmarks.games.players import Played, Player, again, alike, at_random, play, scripted
from benchmarks.shared.report import Bar, add_options, finish
from common.picture import rgb_of
from environments.games.environment import GamesConfig, GamesEnvironment
from environments.pool import SandboxPool
from schemas.tables.trajectory import SPLIT_STARTS

FIRST = SPLIT_STARTS["test"]
SEEDS, SHORT_SEEDS = 10, 4
REPLAYED = 2
"""Seeds of each game that are played a second time."""
SHOWN_SEED, COLUMNS, MARGIN = 7, 6, 8
"""Of the picture."""


async def measure(games: GamesEnvironment, names: Sequence[str], seeds: int) -> list[dict[str, Any]]:
    """A row per game."""
    async with SandboxPool([games]) as pool:
        return [await _row(games, pool, name, range(FIRST, FIRST + seeds)) for name in names]


async def _row(games: GamesEnvironment, pool: SandboxPool, name: str, seeds: Sequence[int]) -> dict[str, Any]:
    game, task = games.entries[name], games.task(name)
    random, random_s = await _played(pool, games, name, seeds, at_random)
    script, script_s = await _played(pool, games, name, seeds, scripted)
    firsts = [*zip(seeds, random[:REPLAYED], strict=False), *zip(seeds, script[:REPLAYED], strict=False)]
    seconds = [await play(pool, task, seed, again(first.actions)) for seed, first in firsts]
    same = [alike(first, second) for (_, first), second in zip(firsts, seconds, strict=True)]
    return {
        "game": name,
        "reference": game.reference,
        "threshold": game.threshold,
        "random": _normalised(random, game.reference),
        "random succeeds": fmean(one.success for one in random),
        "scripted": _normalised(script, game.reference),
        "scripted succeeds": fmean(one.success for one in script),
        "scripted reward": fmean(one.reward for one in script),
        "steps random": fmean(len(one.actions) for one in random),
        "steps scripted": fmean(len(one.actions) for one in script),
        "trajectories/s random": len(random) / random_s,
        "trajectories/s scripted": len(script) / script_s,
        "same": fmean(same),
        "about": {"source": game.source, "level": script[-1].reading.level, "seeds": len(seeds)},
    }


async def _played(
    pool: SandboxPool, games: GamesEnvironment, name: str, seeds: Sequence[int], player: Player
) -> tuple[list[Played], float]:
    clock = time.perf_counter()
    task = games.task(name)
    found = await asyncio.gather(*(play(pool, task, seed, player) for seed in seeds))
    return found, time.perf_counter() - clock


def _normalised(played: Sequence[Played], reference: float) -> float:
    return 100 * fmean(one.reading.score for one in played) / reference


async def picture(games: GamesEnvironment, names: Sequence[str], path: Path) -> None:
    """One screen of each game, half way through the scripted player's."""
    async with SandboxPool([games]) as pool:
        played = [await play(pool, games.task(name), SHOWN_SEED, scripted) for name in names]
    screens = [rgb_of(one.middle) for one in played]
    width, height = (side + MARGIN for side in screens[0].size)
    rows = -(-len(screens) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * width + MARGIN, rows * height + MARGIN), "white")
    for number, screen in enumerate(screens):
        sheet.paste(screen, (MARGIN + number % COLUMNS * width, MARGIN + number // COLUMNS * height))
    sheet.save(path, optimize=True)


def main() -> int:
    """Exit status 0 if all bars are reached."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--level", type=int, choices=(1, 2, 3), help="of the games; all if not given, 1 with --short")
    parser.add_argument("--picture", type=Path, help="where to write one screen of each game, and nothing else")
    arguments = parser.parse_args()
    games = GamesEnvironment("games", GamesConfig(browsers=1, pages=2))
    level = arguments.level or (1 if arguments.short or arguments.picture else None)
    names = [name for name, game in games.entries.items() if level in (None, game.level)]
    if arguments.picture:
        asyncio.run(picture(games, names, arguments.picture))
        return 0
    rows = asyncio.run(measure(games, names, SHORT_SEEDS if arguments.short else SEEDS))
    bars = [
        Bar("games in which the scripted player beats the random one", _count(rows, _beats), len(rows), "higher"),
        Bar(
            "games that the scripted player wins at least three times of four", _count(rows, _wins), len(rows), "higher"
        ),
        Bar("least share of a game's repetitions that came to the same", min(row["same"] for row in rows), 1, "higher"),
    ]
    return finish("games", rows, bars, arguments.json)


def _count(rows: Sequence[dict[str, Any]], holds: Any) -> float:
    return float(sum(holds(row) for row in rows))


def _beats(row: dict[str, Any]) -> bool:
    return row["scripted"] > row["random"]


def _wins(row: dict[str, Any]) -> bool:
    return row["scripted succeeds"] >= 0.75


if __name__ == "__main__":
    sys.exit(main())
