"""The seam between a policy and where it acts: one sandbox, one task, one seed, one final lifecycle.

`start`, then any number of `observe`, `perform` and `verify`, at most one `conclude`, then `stop`. The public methods
are final: they keep the time and turn a hung sandbox into a `SandboxFailure`, and so any error that nobody foresaw; an
environment writes the underscored ones. So nothing that a page answers or a policy does ends more than its trajectory.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar, final

from environments.verifier import Verifier
from schemas.action import TERMINAL, Action, CallUser, Finished, Type
from schemas.config.sections import EnvironmentConfig
from schemas.failure import ActionFailure, FlywheelError, SandboxFailure, TrajectoryFailure
from schemas.observation import Observation, Outcome
from schemas.picture import is_plain, plain
from schemas.tables.task import GuiTask
from schemas.text import storable

T = TypeVar("T")
MOST_TYPED = 10_000
"""Characters that one action may type: a page takes 10 of them in a millisecond, a desktop fewer."""
_LONGEST_REASON = 400


class Sandbox(ABC):
    """An isolated box in which one trajectory is rolled out; leased from a pool, never shared."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self._limits = config
        self._stopping: asyncio.Task[None] | None = None
        self._reclaimed = ""
        self._asking = 0
        self.playing = "nothing"
        """The id of the task that it was started with."""
        self.clock: Callable[[], float] = time.monotonic
        """Seconds, for `silent_s`."""
        self._asked = self.clock()

    @property
    @final
    def silent_s(self) -> float:
        """Seconds since its holder last asked something of it and got an answer; 0 while it is answering."""
        return 0.0 if self._asking else self.clock() - self._asked

    @property
    def memory_mb(self) -> float | None:
        """What processes of its own hold of this machine's memory, in MB, beside its host's; None where it has none."""
        return None

    @final
    async def start(self, task: GuiTask, seed: int) -> None:
        """Brings the task up; the same task and seed always look the same.

        Raises:
            SandboxFailure: the box died, hung, or could not show the task.
        """
        self.playing = task.task_id
        await self._in_time(self._start(task, seed), "start", self._limits.start_timeout_s)

    @final
    async def observe(self, elements: bool = False) -> Observation:
        """What the screen shows now, of whatever size, with its elements if asked and there are any.

        Its picture is a plain PNG (`schemas.picture`), whatever the environment drew.

        Raises:
            SandboxFailure: the box died or hung, or shows no picture.
        """
        seen = await self._in_time(self._observe(elements), "screenshot")
        if is_plain(seen.png):
            return seen
        try:
            png, width, height = await asyncio.to_thread(plain, seen.png)
        except Exception as error:  # Pillow raises SyntaxError, zlib.error, struct.error and more for a broken one
            raise SandboxFailure(f"the screen is no picture: {error}"[:_LONGEST_REASON]) from error
        return replace(seen, png=png, width=width, height=height)

    @final
    async def perform(self, action: Action) -> str | None:
        """Performs one action and lets the page react. `finished` and `call_user` touch nothing: `conclude` takes them.

        Returns:
            Why the action came to nothing, where the environment says so and goes on; None where it was performed.

        Raises:
            ActionFailure: this environment cannot perform such an action, which ends the trajectory.
            SandboxFailure: the box died or hung.
        """
        if action.type in TERMINAL:
            return None
        if isinstance(action, Type) and len(action.content) > MOST_TYPED:
            raise ActionFailure(f"types {len(action.content)} characters, and one action may type {MOST_TYPED}")
        return await self._in_time(self._perform(action), action.type)

    @final
    async def conclude(self, action: Finished | CallUser) -> None:
        """Tells the environment how the policy ends the trajectory, once, before the last verdict; raises as `perform`
        does."""
        await self._in_time(self._conclude(action), action.type)

    @final
    async def verify(self, verifier: Verifier) -> Outcome:
        """What a verifier reads from the box now.

        Raises:
            SandboxFailure: the box died or hung.
            TrajectoryFailure: of boundary `verifier`, if the box holds no verdict.
        """
        return await self._in_time(verifier.outcome(self), "verifier")

    @final
    async def stop(self) -> None:
        """Gives everything back before it returns; never raises for a box that is gone, and may be called again."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._give_back())
        await asyncio.shield(self._stopping)

    @final
    async def reclaim(self, why: str) -> None:
        """Stops it while it is leased: whatever its holder still asks of it is a SandboxFailure that says why."""
        self._reclaimed = why
        await self.stop()

    async def _in_time(self, work: Coroutine[Any, Any, T], what: str, limit_s: float | None = None) -> T:
        if self._reclaimed:
            work.close()
            raise SandboxFailure(self._reclaimed)
        limit_s = limit_s or self._limits.step_timeout_s
        self._asking += 1
        try:
            return await self._answered(work, what, limit_s)
        except (TrajectoryFailure, FlywheelError):
            raise
        except Exception as error:
            raise SandboxFailure(self._reclaimed or _unforeseen(what, error)) from error
        finally:
            self._asking -= 1
            self._asked = self.clock()

    async def _answered(self, work: Coroutine[Any, Any, T], what: str, limit_s: float) -> T:
        try:
            async with asyncio.timeout(limit_s):
                return await work
        except TimeoutError as error:
            await self._abandon()
            raise SandboxFailure(f"no answer to {what} within {limit_s:g} s") from error

    async def _give_back(self) -> None:
        try:
            await self._ended()
        except Exception as error:  # what it came to is known by now, and the next lease is another sandbox
            logging.getLogger(__name__).warning(_unforeseen("stop", error))

    async def _ended(self) -> None:
        try:
            async with asyncio.timeout(self._limits.step_timeout_s):
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
    async def _perform(self, action: Action) -> str | None: ...

    @abstractmethod
    async def _stop(self) -> None: ...

    async def _conclude(self, action: Finished | CallUser) -> None:
        """For environments that score an answer, or the word that a task cannot be done."""
        return

    async def _abandon(self) -> None:
        """Called when the box hangs: ends what may hang with it."""
        return


def _unforeseen(what: str, error: Exception) -> str:
    """The reason that names an error of a sandbox's own code, or of what it was answered."""
    return storable(f"{what}: {type(error).__name__}: {error}"[:_LONGEST_REASON])
