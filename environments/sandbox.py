"""The seam between whatever plays and whatever is played: one box, one task, one seed, one final lifecycle.

`start`, then any number of `observe`, `perform` and `verify`, then `stop`. The public methods are final: they keep
the time and turn a hung box into a `SandboxFailure`; an environment writes the underscored ones.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TypeVar, final

from schemas.action import TERMINAL, Action
from schemas.failure import SandboxFailure
from schemas.observation import Observation, Outcome
from schemas.task import GuiTask

T = TypeVar("T")


class Sandbox(ABC):
    """An isolated box in which one trajectory is played; leased from a pool, never shared."""

    def __init__(self, step_timeout_s: float = 20.0) -> None:
        self._step_timeout_s = step_timeout_s
        self._stopped = False

    @final
    async def start(self, task: GuiTask, seed: int) -> None:
        """Brings the task up; the same task and seed always look the same.

        Raises:
            SandboxFailure: the box died, hung, or could not show the task.
        """
        await self._in_time(self._start(task, seed), "start")

    @final
    async def observe(self, elements: bool = False) -> Observation:
        """What the screen shows now, with the page's elements if asked; raises SandboxFailure."""
        return await self._in_time(self._observe(elements), "screenshot")

    @final
    async def perform(self, action: Action) -> None:
        """Performs one action and lets the page react. `finished` and `call_user` touch nothing.

        Raises:
            ActionFailure: this environment cannot perform such an action.
            SandboxFailure: the box died or hung.
        """
        if action.type not in TERMINAL:
            await self._in_time(self._perform(action), action.type)

    @final
    async def verify(self) -> Outcome:
        """What the task's verifier reads from the box now.

        Raises:
            SandboxFailure: the box died or hung.
            TrajectoryFailure: of boundary `verifier`, if the box holds no verdict.
        """
        return await self._in_time(self._verify(), "verifier")

    @final
    async def stop(self) -> None:
        """Gives everything back; never raises for a box that is gone, and may be called again."""
        if self._stopped:
            return
        self._stopped = True
        await asyncio.shield(self._give_back())

    async def _in_time(self, work: Awaitable[T], what: str) -> T:
        try:
            async with asyncio.timeout(self._step_timeout_s):
                return await work
        except TimeoutError as error:
            await self._abandon()
            raise SandboxFailure(f"no answer to {what} within {self._step_timeout_s:g} s") from error

    async def _give_back(self) -> None:
        try:
            async with asyncio.timeout(self._step_timeout_s):
                await self._stop()
        except TimeoutError:
            await self._abandon()
        except SandboxFailure:
            return

    @abstractmethod
    async def _start(self, task: GuiTask, seed: int) -> None: ...

    @abstractmethod
    async def _observe(self, elements: bool) -> Observation: ...

    @abstractmethod
    async def _perform(self, action: Action) -> None: ...

    @abstractmethod
    async def _verify(self) -> Outcome: ...

    @abstractmethod
    async def _stop(self) -> None: ...

    async def _abandon(self) -> None:
        """Called when the box hangs: ends what may hang with it."""
        return
