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
    """A sandbox for an episode in a worker; keys are sent by their usual names."""

    def _written(self, action: Action) -> dict[str, Any]:
        written = super()._written(action)
        if not self._config.actions and isinstance(action, Hotkey | Press | Release):
            written["key"] = usual(action.key)
        return written


class WorkerHost(Host):
    """A process that is restarted when it dies, or when an answer is late.

    Args:
        place: name of the process in messages.
        config: defines how messages are read and written, and the time limit of the start.
        command: Python and script of the process.
        variables: environment variables of the process.
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
        """Returns the memory of the process and its descendants."""
        return memory_mb(self._process.pid) if self._process is not None else None

    async def healthy(self) -> bool:
        """Checks whether the process answers."""
        if self._process is None:
            return False
        try:
            async with asyncio.timeout(ANSWERS_S):
                await self._process.state()
        except (TimeoutError, ServerLost, ServerRefused):
            return False
        return True

    async def revive(self) -> bool:
        """Starts a process if none runs."""
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
        """Makes a sandbox for an episode in the process."""
        process = self._process
        assert process is not None
        return WorkerSandbox(self._config, lambda: process)

    async def close(self) -> None:
        """Ends the process and its descendants."""
        async with self._reviving:
            if self._process is not None:
                await self._process.end()
                self._process = None
