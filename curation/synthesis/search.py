"""Measure the search cost of a made task for its step limit, and check that its words lead to its reward."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from curation.synthesis.player import Player, PlayerLost
from curation.synthesis.reward import Unreadable
from curation.synthesis.words import Ask, asks
from schemas.walk import Layout, PageWalk
from schemas.world import FieldCheck, Site, State, score

TRIES = 12
"""Number of trajectories, each of another seed, in which the player searches."""
MARGIN = 1.5
"""A task's step limit over the steps of the longest of them."""
SLACK = 4
"""Additional steps, so that a short task leaves room for a mistake."""
MAX_STEPS = 100
"""Maximum step limit of a task, unless `synthesis.max_steps` is set."""


@dataclass(frozen=True, slots=True)
class PlaySearch:
    """Result of playing a task."""

    limit: int = 0
    """Step limit, with the margin; 0 where the player did not solve the task."""
    reason: str = ""
    """Reason without a solution: `search` where the target was not found within the maximum limit, `contradiction`
    where the played words were not rewarded."""
    problem: str = ""
    """The reason in words."""


def searched(
    site: Site, layout: Layout, instruction: str, initial: State, checks: Sequence[FieldCheck], max_steps: int
) -> PlaySearch | None:
    """Play a task in trajectories of several seeds; return None where the player cannot parse its words.

    Args:
        site: its vocabulary is used, its entities are not.
        layout: layout of its pages.
        instruction: the words.
        initial: initial state of the task.
        checks: its reward.
        max_steps: maximum step limit of a task.
    """
    blind = vocabulary(site)
    try:
        sentences = asks(blind, instruction)
    except Unreadable:
        return None

    def rewarded(state: State) -> bool:
        return score(checks, state) == 1.0

    longest = 0
    for seed in range(TRIES):
        walk = layout.walk(initial, seed)
        try:
            steps = steps_of(Player(blind, layout), walk, sentences, rewarded, int((max_steps - SLACK) / MARGIN))
        except PlayerLost as error:
            return PlaySearch(reason="search", problem=str(error))
        if steps is None:
            problem = "played as they are written, the words end in a state that is not rewarded"
            return PlaySearch(reason="contradiction", problem=problem)
        longest = max(longest, steps)
    return PlaySearch(math.ceil(longest * MARGIN) + SLACK)


def vocabulary(site: Site) -> Site:
    """Return a site without its entities: the vocabulary, which a player may know."""
    return site.model_copy(update={"entities": ()})


def steps_of(
    player: Player, walk: PageWalk, sentences: Iterable[Ask], done: Callable[[State], bool], max_steps: int
) -> int | None:
    """Return the number of steps after which a player is done; None where it ends before.

    Args:
        player: with an empty memory.
        walk: at its start.
        sentences: the parsed instruction.
        done: whether a state is rewarded.
        max_steps: maximum number of steps.

    Raises:
        PlayerLost: it finds no way on, or takes more steps.
    """
    moves = player.play(sentences)
    next(moves)
    for step in range(max_steps + 1):
        if done(walk.state):
            return step
        try:
            kind, what = moves.send(walk.items())
        except StopIteration:
            return None
        if kind == "click" and isinstance(what, int):
            walk.click(what)
        elif kind == "clear":
            walk.clear()
        else:
            walk.type(str(what))
    raise PlayerLost(f"a search takes more than {max_steps} steps")
