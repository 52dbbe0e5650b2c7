"""Fake sandboxes whose pages are slow, a few of them very: trajectories with a heavy tail of lengths.

How long every action of a play takes is drawn once per play from Pareto's law, P(D > d) = (least / d)^tail, cut off at
the top. The draw depends on the task, the seed and how many plays of these there were before: every arm meets the same.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from environments.fake.sandbox import FakeSandbox
from environments.hosts import FakeHost
from environments.sandbox import Sandbox
from schemas.action import Action
from schemas.task import GuiTask


@dataclass(frozen=True, slots=True)
class Law:
    """Seconds that each action of a play takes."""

    least: float = 0.3
    tail: float = 1.2
    most: float = 15.0

    def draw(self, chance: random.Random) -> float:
        """One play's."""
        return min(self.most, self.least * chance.random() ** (-1 / self.tail))


class SlowSandbox(FakeSandbox):
    """A fake sandbox that waits before each action."""

    def __init__(self, step_timeout_s: float, law: Law, before: Counter[tuple[str, int]]) -> None:
        super().__init__(step_timeout_s)
        self._law, self._before = law, before

    async def _start(self, task: GuiTask, seed: int) -> None:
        await super()._start(task, seed)
        key = (task.task_id, seed)
        self._delay = self._law.draw(random.Random(f"{key} {self._before[key]}"))
        self._before[key] += 1

    async def _perform(self, action: Action) -> None:
        await asyncio.sleep(self._delay)
        await super()._perform(action)


@contextmanager
def slow_pages(law: Law, step_timeout_s: float) -> Iterator[None]:
    """While this lasts, every new fake sandbox is a slow one; the draws begin anew."""
    before: Counter[tuple[str, int]] = Counter()

    def sandbox(host: FakeHost) -> Sandbox:
        return SlowSandbox(step_timeout_s, law, before)

    with patch.object(FakeHost, "sandbox", sandbox):
        yield
