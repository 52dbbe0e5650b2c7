"""Host one sandbox at a time in a worker process, and replace it when it dies."""

import asyncio
from collections.abc import Mapping
from typing import Any

from environments.host import Host
from environments.openenv.client import ServerLost, ServerRefused
from environments.openenv.foreign import ForeignConfig
from environments.openenv.sandbox import OpenEnvSandbox
from environments.processes import memory_mb
from environments.sandbox import Sandbox
from environments.workers.process import WorkerProcess
from schemas.action import Action, Hotkey, Press, Release
from schemas.keyboard import usual

ANSWERS_S = 10.0
"""Seconds that an idle process may take to answer a check."""


class WorkerSandbox(OpenEnvSandbox):
    """One episode in a worker; keys are sent by their usual names."""

    def _written(self, action: Action) -> dict[str, Any]:
        written = super()._written(action)
        if not self._config.actions and isinstance(action, Hotkey | Press | Release):
            written["key"] = usual(action.key)
        return written


class WorkerHost(Host):
    """A process that is restarted when it dies, or when an answer is late.

    Args:
        place: its name in messages.
        config: how its environment is read and written, and how long its start may take.
        command: its Python and its script.
        variables: its environment variables.
    """

    def __init__(
        self, place: str, config: ForeignConfig, command: tuple[str, ...], variables: Mapping[str, str]
    ) -> None:
        self._place, self._config = place, config
        self._command, self._variables = command, variables
        self._process: WorkerProcess | None = None
        self._reviving = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.is_open

    @property
    def memory_mb(self) -> float | None:
        """Memory of all its processes."""
        return memory_mb(self._process.pid) if self._process is not None else None

    async def healthy(self) -> bool:
        """Whether it answers."""
        if self._process is None:
            return False
        try:
            async with asyncio.timeout(ANSWERS_S):
                await self._process.state()
        except (TimeoutError, ServerLost, ServerRefused):
            return False
        return True

    async def revive(self) -> bool:
        """Launches a process if none runs."""
        async with self._reviving:
            if self.alive:
                return False
            dead, self._process = self._process, None
            if dead is not None:
                await dead.end()
            limit_s = self._config.start_timeout_s
            self._process = await WorkerProcess.launch(self._place, self._command, self._variables, limit_s)
            return dead is not None

    def sandbox(self) -> Sandbox:
        """An episode in the process."""
        process = self._process
        assert process is not None
        return WorkerSandbox(self._config, lambda: process)

    async def close(self) -> None:
        """Ends the process, with all that it started."""
        async with self._reviving:
            if self._process is not None:
                await self._process.end()
                self._process = None
