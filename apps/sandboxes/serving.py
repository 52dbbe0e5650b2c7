"""Hold the served tasks of a config, their pool of sandboxes, and the count of sandboxes in use."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from common.text import some_of
from environments.catalog import catalog, tasks_named
from environments.pool import SandboxPool
from environments.registry import environments_of
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.task import GuiTask, Split
from schemas.tables.trajectory import SPLIT_STARTS

WAIT_S = 30.0
"""Seconds that a session waits for a sandbox before it is refused; clients wait a minute for an answer."""


class Serving:
    """Tasks and sandboxes of one server.

    Args:
        config: the resolved config.
        names: the served tasks; the suite's, if not given.
        held_out: whether to serve held-out tasks and seeds, too; a policy that trains on them can no longer be
            measured.
        wait_s: seconds that a session waits for a sandbox before it is refused.

    Raises:
        UsageError: a task is unknown, or is held out without `held_out`.
    """

    def __init__(
        self, config: Config, names: Sequence[str] | None = None, held_out: bool = False, wait_s: float = WAIT_S
    ) -> None:
        self.held_out, self._wait_s = held_out, wait_s
        splits: tuple[Split, ...] = ("train", "held_out") if held_out else ("train",)
        if names is None:
            tasks = [task for task in catalog(config) if task.split in splits]
        else:
            kept = set(config.suite.held_out)
            tasks = tasks_named(config, names, "--tasks")
            if not held_out and (closed := [one.task_id for one in tasks if kept & {one.task_id, one.template}]):
                raise UsageError(f"`--tasks`: {closed[0]} is held out.", "Add --held-out, if it is to be played.")
        self.tasks = {task.task_id: task for task in tasks}
        self.environments = environments_of(config, tasks)
        self.pool = SandboxPool(self.environments)
        self.leased: Counter[str] = Counter()
        """Leases by environment."""
        self.sessions = 0
        """Open connections."""
        self._free = {name: asyncio.Semaphore(size) for name, size in self.pool.sizes.items()}

    @property
    def sandboxes(self) -> int:
        """Number of concurrent episodes."""
        return sum(self.pool.sizes.values())

    async def take(self, environment: str) -> bool:
        """Waits for a sandbox of an environment; False if none became free in time."""
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free[environment].acquire()
        except TimeoutError:
            return False
        self.leased[environment] += 1
        return True

    def give_back(self, environment: str) -> None:
        """Returns a sandbox to the count, and wakes a waiting session."""
        self.leased[environment] -= 1
        self._free[environment].release()

    def of_split(self, split: str) -> list[GuiTask]:
        """Lists the tasks of a split, in the config's order."""
        return [task for task in self.tasks.values() if task.split == split]

    def task(self, name: object) -> GuiTask:
        """Finds a served task by its id, or by a unique template; raises ValueError that names the nearest task."""
        if not isinstance(name, str):
            raise ValueError("`task_id` names no task: write, for example, environment/template")
        having = [task for task in self.tasks.values() if name in (task.task_id, task.template)]
        if len(having) == 1:
            return having[0]
        if having:
            raise ValueError(f"`task_id`: {name!r} is a task of several environments: write environment/template")
        near = get_close_matches(name, [*self.tasks, *(task.template for task in self.tasks.values())], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"served tasks: {some_of(list(self.tasks))}"
        raise ValueError(f"`task_id`: no task {name[:80]!r} is served; {hint}")

    def seed(self, given: object) -> int:
        """Checks a requested seed; raises ValueError for an invalid or held-out seed."""
        end = 3 * SPLIT_STARTS["validation"] if self.held_out else SPLIT_STARTS["validation"]
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < end:
            more = "" if self.held_out else "; larger seeds are held out (`--held-out` serves them)"
            raise ValueError(f"`seed`: {str(given)[:40]} is not an integer from 0 to {end - 1:,}{more}")
        return given
