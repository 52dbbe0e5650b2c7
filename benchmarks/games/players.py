"""Players of games: at random, by the game's own script, and again what was played before."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from environments.games.environment import GameSandbox, GameState
from environments.pool import SandboxPool
from models.explorer import PageExplorer
from models.families.dialects import format_action
from models.policy import Context
from schemas.action import Action, Wait
from schemas.observation import Observation, PastStep
from schemas.tables.task import GuiTask


@dataclass(frozen=True, slots=True)
class Seen:
    """What a player may look at before it acts."""

    sandbox: GameSandbox
    shown: Observation
    seed: int
    turns: tuple[PastStep, ...]


Player = Callable[[Seen], Awaitable[Action | None]]
"""What is done next; None where there is nothing to do, which ends the game."""


@dataclass(frozen=True, slots=True)
class Played:
    """A game that was played until it was over or its steps were used up."""

    reading: GameState
    reward: float
    success: bool
    actions: tuple[Action, ...]
    pictures: tuple[str, ...]
    """SHA-256 of every screen, the first and the last among them."""
    middle: bytes
    """A screen about half way on which something was done, as PNG."""


async def at_random(seen: Seen) -> Action | None:
    """The explorer: anything that the page lists, and the keys that the instruction names."""
    context = Context(seen.shown.instruction, seen.turns, seen.shown, seen.seed)
    return PageExplorer().act([context])[0].action


async def scripted(seen: Seen) -> Action | None:
    """What the game's own script would do, which sees more than the screen."""
    return await seen.sandbox.hint()


def again(actions: Sequence[Action]) -> Player:
    """What was played before."""

    async def player(seen: Seen) -> Action | None:
        number = len(seen.turns)
        return actions[number] if number < len(actions) else None

    return player


async def play(pool: SandboxPool, task: GuiTask, seed: int, player: Player) -> Played:
    """Plays one game; raises TrajectoryFailure."""
    actions, pngs = list[Action](), list[bytes]()
    turns: tuple[PastStep, ...] = ()
    async with pool.lease(task, seed) as sandbox:
        assert isinstance(sandbox, GameSandbox)
        for _ in range(task.max_steps):
            shown = await sandbox.observe(elements=player is at_random)
            pngs.append(shown.png)
            action = await player(Seen(sandbox, shown, seed, turns))
            if action is None:
                break
            await sandbox.perform(action)
            actions.append(action)
            turns = (*turns, PastStep("", _written(action), shown))
            if sandbox.reading.over:
                break
        pngs.append((await sandbox.observe()).png)
        reward, reading = sandbox.reward, sandbox.reading
    digests = tuple(hashlib.sha256(png).hexdigest() for png in pngs)
    done = [number for number, action in enumerate(actions) if not isinstance(action, Wait)]
    middle = pngs[done[len(done) // 2] if done else 0]
    return Played(reading, reward, reward >= task.threshold, tuple(actions), digests, middle)


def alike(one: Played, other: Played) -> bool:
    """Whether two came to the same score, level and end over the same screens."""
    return (one.reading, one.pictures) == (other.reading, other.pictures)


def _written(action: Action) -> str:
    return format_action(action, PageExplorer.dialect)
