"""The leases of one environment: a few hosts (browsers) hold a few sandboxes (pages) each.

A host that dies takes only its own leases with it; whoever leases next gets a live one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from environments.environment import Environment
from environments.host import Host
from environments.leased import held
from environments.sandbox import Sandbox
from schemas.failure import EnvironmentDown, SandboxFailure
from schemas.tables.task import GuiTask

STARTS = 3
"""How often a host is started before nothing begins."""


@dataclass(slots=True)
class PoolMetrics:
    """Counts since the pool was made."""

    leases: int = 0
    """Sandboxes that were started."""
    deaths: int = 0
    """Leases that ended because their box died or hung."""
    restarts: int = 0
    """Dead hosts that were replaced."""


class Leases:
    """Sandboxes of one environment to lease, as many at a time as its size."""

    def __init__(self, environment: Environment[Any], metrics: PoolMetrics) -> None:
        """Raises FlywheelError if the environment needs a host that is not to be had."""
        self.size = environment.size
        self._metrics = metrics
        self._hosts = [environment.host() for _ in range(environment.hosts)]
        self._free = asyncio.Semaphore(self.size)

    async def start(self) -> None:
        """Brings all hosts to life, so that no lease has to wait for one; one that dies as it starts is started again.

        Raises:
            EnvironmentDown: one died `STARTS` times.
        """
        await asyncio.gather(*(self._start(host) for host in self._hosts))

    async def _start(self, host: Host) -> None:
        for tries in range(1, STARTS + 1):
            try:
                await host.revive()
                return
            except SandboxFailure as failure:
                if tries == STARTS:
                    hint = "`flywheel doctor` looks at what is needed. The same command then goes on."
                    raise EnvironmentDown(
                        f"No sandbox starts, tried {STARTS} times: {failure.reason}.", hint
                    ) from failure

    async def close(self) -> None:
        """Ends all hosts; leases that still run fail."""
        await asyncio.gather(*(host.close() for host in self._hosts))

    @asynccontextmanager
    async def lease(self, task: GuiTask, seed: int) -> AsyncIterator[Sandbox]:
        """A sandbox in which `task` with `seed` has been started, stopped on the way out; raises SandboxFailure."""
        async with self._free:
            host, sandbox = await self._begin(task, seed)
            self._metrics.leases += 1
            try:
                with held(task.environment, task.task_id, seed):
                    yield sandbox
            except SandboxFailure:
                self._metrics.deaths += 1
                raise
            finally:
                host.leases -= 1
                await sandbox.stop()

    async def _begin(self, task: GuiTask, seed: int) -> tuple[Host, Sandbox]:
        """A started sandbox; tries a second time if the host died before the task was up."""
        try:
            return await self._begin_once(task, seed)
        except SandboxFailure:
            if all(host.alive for host in self._hosts):
                raise
            return await self._begin_once(task, seed)

    async def _begin_once(self, task: GuiTask, seed: int) -> tuple[Host, Sandbox]:
        host = min(self._hosts, key=lambda one: one.leases)
        host.leases += 1
        sandbox: Sandbox | None = None
        try:
            replaced = await host.revive()
            self._metrics.restarts += replaced
            sandbox = host.sandbox()
            await sandbox.start(task, seed)
        except BaseException:
            host.leases -= 1
            if sandbox is not None:
                await sandbox.stop()
            raise
        return host, sandbox
