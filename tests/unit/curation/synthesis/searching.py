"""The player in a sandbox: it sees what the screen lists, and acts by clicks and keys."""

from collections.abc import Sequence

from curation.synthesis.player import Player, vocabulary
from curation.synthesis.words import asks
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.site.environment import SiteEnvironment
from schemas import action as act
from schemas.observation import Element
from schemas.tables.task import GuiTask
from schemas.world import PageItem


async def steps_in(pool: SandboxPool, environment: SiteEnvironment, task: GuiTask, seed: int) -> int:
    """The steps after which the player is rewarded; -1 where it ends without a reward."""
    verifier, site = verifier_of("state"), environment.world.site
    assert verifier is not None and site is not None
    player = Player(vocabulary(site), environment.layout)
    moves, steps = player.play(asks(vocabulary(site), task.instruction)), 0
    next(moves)
    async with pool.lease(task, seed) as sandbox:
        while True:
            elements = (await sandbox.observe(elements=True)).elements
            try:
                kind, what = moves.send(items_of(elements))
            except StopIteration:
                return -1
            if kind == "click":
                x, y = elements[int(what)].centre
                await sandbox.perform(act.Click(x=x, y=y))
            else:
                await sandbox.perform(act.Type(content=str(what)) if kind == "type" else act.Hotkey(key="ctrl a"))
            steps += 1
            if (await sandbox.verify(verifier)).reward == 1.0:
                return steps


def items_of(elements: Sequence[Element]) -> list[PageItem]:
    """What the screen lists; its first text is its heading."""
    heading = next(at for at, one in enumerate(elements) if one.kind == "text")
    return [PageItem("heading" if at == heading else one.kind, one.name, one.value) for at, one in enumerate(elements)]
