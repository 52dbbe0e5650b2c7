"""Make the fake environment slow, with a heavy tail: a few trajectories take very long.

Each trajectory draws the time of its actions once from Pareto's law, P(D > d) = (least_s / d)^tail, cut off at the top.
The draw depends on the task, the seed and the number of earlier trajectories of both in the pool, so every arm has the
same. A config names it as `environments.fake.kind=benchmarks.learning._slow_sandbox:SlowEnvironment`.
"""

import asyncio
import random
from collections import Counter

from environments.fake import FakeConfig, FakeEnvironment, FakeSandbox
from environments.host import Host, NoHost
from schemas.action import Action
from schemas.config.section import Positive
from schemas.tables.task import GuiTask


class SlowConfig(FakeConfig):
    """Seconds that each action of a trajectory takes."""

    least_s: Positive = 0.3
    tail: Positive = 1.2
    most_s: Positive = 15.0

    def draw(self, chance: random.Random) -> float:
        """One trajectory's."""
        return min(self.most_s, self.least_s * chance.random() ** (-1 / self.tail))


class SlowSandbox(FakeSandbox):
    """A fake sandbox that waits before each action."""

    def __init__(self, config: SlowConfig, before: Counter[tuple[str, int]]) -> None:
        super().__init__(config)
        self._law, self._before = config, before

    async def _start(self, task: GuiTask, seed: int) -> None:
        await super()._start(task, seed)
        key = (task.task_id, seed)
        self.delay_s = self._law.draw(random.Random(f"{key} {self._before[key]}"))
        self._before[key] += 1

    async def _perform(self, action: Action) -> None:
        await asyncio.sleep(self.delay_s)
        await super()._perform(action)


class SlowEnvironment(FakeEnvironment):
    """The fake tasks in slow sandboxes; each pool draws anew."""

    section = SlowConfig
    config: SlowConfig

    def host(self) -> Host:
        """None is needed; what was drawn before is counted here."""
        before: Counter[tuple[str, int]] = Counter()
        return NoHost(lambda: SlowSandbox(self.config, before))
