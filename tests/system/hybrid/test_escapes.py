"""Ways out of the hybrid shell: none leads out, and the pool works after each of them."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from environments.hybrid.sandbox import HybridSandbox
from environments.hybrid.scripted import solve
from environments.pool import SandboxPool
from tests.fixtures.escapes import MARK, SECRET, Host, escapes, host, leftovers, tried
from tests.system.hybrid.isolation import NEEDS_A_JAIL, hybrid
from tests.tiers import NIGHTLY

pytestmark = [NEEDS_A_JAIL, pytest.mark.usefixtures("real_browser")]
NAMES = list(escapes(Host(Path("/none"), 0, "", [])))
LONG = ("a fork bomb", "what cannot be interrupted", "the end of everything")
"""They use up their command's time; in the quick tier that is short."""


class Attempts:
    """A pool, and what stands outside of it."""

    def __init__(self, stack: ExitStack) -> None:
        self.there = stack.enter_context(host())
        self.runner = stack.enter_context(asyncio.Runner())
        self.environment = hybrid(1, 1, command_s=5.0 if NIGHTLY else 1.5)
        self.pool = SandboxPool([self.environment])
        self.runner.run(self.pool.start())
        stack.callback(lambda: self.runner.run(self.pool.close()))

    def attempt(self, name: str) -> tuple[str, float]:
        """What an escape printed, and the reward of the next lease."""

        async def both() -> tuple[str, float]:
            task = self.environment.task("files-delete")
            async with self.pool.lease(task, 1) as sandbox:
                assert isinstance(sandbox, HybridSandbox)
                answer = await tried(sandbox, escapes(self.there)[name])
            async with self.pool.lease(task, 2) as sandbox:
                assert isinstance(sandbox, HybridSandbox)
                return answer, (await solve(sandbox)).reward

        return self.runner.run(both())


@pytest.fixture(scope="module")
def attempts() -> Iterator[Attempts]:
    with ExitStack() as stack:
        yield Attempts(stack)


def test_there_are_at_least_twenty_five() -> None:
    assert len(NAMES) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_way_leads_out_and_the_next_lease_works(attempts: Attempts, name: str) -> None:
    answer, reward = attempts.attempt(name)
    assert MARK not in answer and SECRET not in answer
    assert reward == 1.0
    assert attempts.there.asked == []
    assert leftovers() == []
