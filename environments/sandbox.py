"""Define the interface between a policy and its environment: one sandbox, one task, one seed, one fixed lifecycle.

`start`, then any number of `observe`, `perform` and `verify`, at most one `conclude`, then `stop`. The public methods
are final: they enforce time limits and turn a hung sandbox or an unexpected error into a `SandboxFailure`. An
environment implements the methods with an underscore. So an answer of a page or an action of a policy ends at most its
own trajectory.

A `StatefulSandbox` has a JSON state that can be set and read; the verifier `state` checks a task's goal on it.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar, final

from common.picture import is_plain, plain
from common.text import storable
from environments.verifier import Verifier
from schemas.action import TERMINAL, Action, CallUser, Finished, Type, UseTool, seconds_of
from schemas.config.sections import EnvironmentConfig
from schemas.failure import ActionFailure, FlywheelError, SandboxFailure, TrajectoryFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask
from schemas.world import Setup, State, score

T = TypeVar("T")
MOST_TYPED = 10_000
"""Maximum characters that one action may type; a page accepts 10 per millisecond, and a desktop fewer."""
_LONGEST_REASON = 400


class Sandbox(ABC):
    """An isolated place for one trajectory, which is leased from a pool and never shared."""

    has_tools: bool = False
    """Whether `_perform` receives calls of tools; all others are refused."""
    can: str = "the environment takes actions on its screen, such as click, scroll and type"
    """Clause of a refusal that describes the actions that the environment takes."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self._limits = config
        self._stopping: asyncio.Task[None] | None = None
        self._reclaimed = ""
        self._asking = 0
        self.playing = "nothing"
        """Id of the started task."""
        self.clock: Callable[[], float] = time.monotonic
        """Clock in seconds, for `silent_s`."""
        self._asked = self.clock()
        self._scripted: Iterator[Action] = iter(())
        """Rest of the task's script, if the environment has one; `_start` sets it."""

    @property
    @final
    def silent_s(self) -> float:
        """Seconds since the owner's last answered request; 0 during a request."""
        return 0.0 if self._asking else self.clock() - self._asked

    @property
    def memory_mb(self) -> float | None:
        """Returns the memory of the sandbox's own processes on this machine, in MB, without the host's; None without
        processes."""
        return None

    @final
    async def start(self, task: GuiTask, seed: int) -> None:
        """Starts the task; equal tasks and seeds always look the same.

        Raises:
            SandboxFailure: the sandbox died, hung, or could not show the task.
        """
        self.playing = task.task_id
        await self._in_time(self._start(task, seed), "start", self._limits.start_timeout_s)

    @final
    async def observe(self, elements: bool = False) -> Observation:
        """Captures the screen, at any size, and lists its elements if requested and available.

        The screenshot is a plain PNG (`common.picture`), whatever the environment's format.

        Raises:
            SandboxFailure: the sandbox died or hung, or returned no screenshot.
        """
        seen = await self._in_time(self._observe(elements), "screenshot")
        if is_plain(seen.png):
            return seen
        try:
            png, width, height = await asyncio.to_thread(plain, seen.png)
        except Exception as error:  # Pillow raises SyntaxError, zlib.error, struct.error and more for a broken one
            raise SandboxFailure(f"the screen is not an image: {error}"[:_LONGEST_REASON]) from error
        return replace(seen, png=png, width=width, height=height)

    @final
    async def perform(self, action: Action) -> str | None:
        """Performs one action and lets the page react. `finished` and `call_user` have no effect; they are passed to
        `conclude`. A note has none either.

        Returns:
            The reason why the action had no effect, if the environment reports one and continues; None if it was
            performed.

        Raises:
            ActionFailure: the environment cannot perform such an action, which ends the trajectory.
            SandboxFailure: the sandbox died or hung.
        """
        if action.type in (*TERMINAL, "note"):
            return None
        if isinstance(action, UseTool) and not self.has_tools:
            return f"there is no tool {action.name[:80]!r}: {self.can}"
        if isinstance(action, Type) and len(action.content) > MOST_TYPED:
            raise ActionFailure(f"types {len(action.content)} characters, and one action may type {MOST_TYPED}")
        limit_s = self._limits.step_timeout_s + (seconds_of(action) or 0.0)
        return await self._in_time(self._perform(action), action.type, limit_s)

    @final
    async def conclude(self, action: Finished | CallUser) -> None:
        """Passes the policy's final action to the environment, once, before the last verdict; raises the errors of
        `perform`."""
        await self._in_time(self._conclude(action), action.type)

    @final
    async def hint(self) -> Action | None:
        """Returns the next action of the environment's own script for the task; None without a script or at its end.

        A script knows more than the screen shows, so only explorers that need hints get one.
        """
        return await self._in_time(self._hint(), "hint")

    @final
    async def verify(self, verifier: Verifier) -> Outcome:
        """Runs a verifier on the current state of the sandbox.

        Raises:
            SandboxFailure: the sandbox died or hung.
            TrajectoryFailure: of boundary `verifier`, if the sandbox has no verdict.
        """
        return await self._in_time(verifier.outcome(self), "verifier")

    @final
    async def stop(self) -> None:
        """Releases all resources before it returns; never raises for a dead sandbox, and may be called again."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._give_back())
        await asyncio.shield(self._stopping)

    @final
    async def reclaim(self, why: str) -> None:
        """Stops the sandbox while it is leased; each later request of its owner raises a SandboxFailure with the
        reason."""
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
        except Exception as error:  # the outcome is already recorded, and the next lease gets another sandbox
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
        """Handles the final action, for environments that score an answer or the report that a task is infeasible."""
        return

    async def _hint(self) -> Action | None:
        return next(self._scripted, None)

    async def _abandon(self) -> None:
        """Ends the processes that may hang with the sandbox; called if it hangs."""
        return


def _unforeseen(what: str, error: Exception) -> str:
    """Returns the reason for a failure by an unexpected error of the sandbox's code, or of an answer."""
    return storable(f"{what}: {type(error).__name__}: {error}"[:_LONGEST_REASON])


class StatefulSandbox(Sandbox):
    """A sandbox whose initial state a `Setup` sets."""

    setup: Setup | None = None
    """Setup of the started task; None if it has a reward of its own."""

    @property
    @abstractmethod
    def state(self) -> State:
        """Returns the current state."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Returns whether the state is final."""


class StateReward(Verifier):
    """Rewards 1 as soon as all checks hold, 0 once the state is final."""

    each_step = True
    reads = StatefulSandbox

    async def outcome(self, sandbox: StatefulSandbox) -> Outcome:
        """Scores only the state."""
        if sandbox.setup is None:
            raise TrajectoryFailure("verifier", "the task names no checks on the sandbox's state")
        reward = score(sandbox.setup.checks, sandbox.state)
        return Outcome(done=reward == 1.0 or sandbox.over, reward=reward)
