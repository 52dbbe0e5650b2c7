"""What a made task costs whoever has to search: its limit, and whether its words lead to its reward."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from curation.synthesis.player import Player, PlayerLost
from curation.synthesis.reward import Unreadable
from curation.synthesis.words import Ask, asks
from schemas.walk import Layout, PageWalk
from schemas.world import FieldCheck, Site, State, score

TRIES = 12
"""Trajectories, each of another seed, in which the player searches."""
MARGIN = 1.5
"""A task's limit over the steps of the longest of them."""
SLACK = 4
"""Steps on top of it, so that a short task leaves room for a mistake."""
MAX_STEPS = 100
"""A limit that is given to no task to exceed, unless `synthesis.max_steps` says otherwise."""


@dataclass(frozen=True, slots=True)
class PlaySearch:
    """What playing a task came to."""

    limit: int = 0
    """Steps, with the margin; 0 where the player did not solve it."""
    reason: str = ""
    """Why it did not: `search` where what the words mean was not found within the highest limit, `contradiction` where
    they were played and not rewarded."""
    problem: str = ""
    """The same in words."""


def searched(
    site: Site, layout: Layout, instruction: str, initial: State, checks: Sequence[FieldCheck], max_steps: int
) -> PlaySearch | None:
    """Plays a task in trajectories of several seeds; None where the player cannot read its words.

    Args:
        site: its vocabulary is used, its entities are not.
        layout: of its pages.
        instruction: the words.
        initial: the state that the task starts from.
        checks: its reward.
        max_steps: the highest limit that a task may have.
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
    """A site without its entities: the words about it, which a player may know."""
    return site.model_copy(update={"entities": ()})


def steps_of(
    player: Player, walk: PageWalk, sentences: Iterable[Ask], done: Callable[[State], bool], max_steps: int
) -> int | None:
    """The steps after which a player is done; None where it ends before.

    Args:
        player: with an empty memory.
        walk: at its start.
        sentences: what is asked for.
        done: whether a state is rewarded.
        max_steps: that it may take.

    Raises:
        Lost: it finds no way on, or takes more steps.
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
