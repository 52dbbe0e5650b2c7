"""Lease sandboxes from a pool: `async with pool.lease(task, seed) as sandbox` is the only way to get one.

It holds several environments at once, each with its own hosts, size and time limits; a task gets a sandbox of its own
environment.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from environments.environment import Environment
from environments.leases import Leases, PoolMetrics
from environments.sandbox import Sandbox
from schemas.tables.task import GuiTask


class SandboxPool:
    """Sandboxes of these environments to lease."""

    def __init__(self, environments: Iterable[Environment[Any]]) -> None:
        """Raises FlywheelError if an environment needs a host (a browser) that is not available."""
        self.metrics = PoolMetrics()
        self._leases = {environment.name: Leases(environment, self.metrics) for environment in environments}

    @property
    def sizes(self) -> dict[str, int]:
        """Maximum number of simultaneous leases, by environment."""
        return {name: leases.size for name, leases in self._leases.items()}

    async def start(self) -> None:
        """Brings all hosts to life, so that no lease has to wait for one; raises EnvironmentDown."""
        await asyncio.gather(*(leases.start() for leases in self._leases.values()))

    async def close(self) -> None:
        """Ends all hosts; leases that still run fail."""
        await asyncio.shield(asyncio.gather(*(leases.close() for leases in self._leases.values())))

    async def __aenter__(self) -> "SandboxPool":
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def lease(self, task: GuiTask, seed: int, trajectory_id: str = "") -> AbstractAsyncContextManager[Sandbox]:
        """Leases a sandbox in which `task` with `seed` has been started; stops it on exit.

        Args:
            task: a task of one of these environments.
            seed: seed of the task.
            trajectory_id: the trajectory that is rolled out in it, for the list of leases.

        Raises:
            SandboxFailure: no box could be started, or the box died while it was leased.
        """
        return self._leases[task.environment].lease(task, seed, trajectory_id)
