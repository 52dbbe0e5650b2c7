"""Define hosts of sandboxes, such as a browser that is replaced when it dies; a host may have no process."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, Protocol, TypeVar, final

from common.process import memory_mb
from environments.sandbox import Sandbox
from schemas.failure import FlywheelError, SandboxFailure

ANSWERS_S = 10.0
"""Time limit of a health check in seconds; a healthy process answers within milliseconds, even if it is busy."""
MEASURED_S = 1.0
"""Maximum age in seconds of a measurement of memory, which walks over all processes of the machine."""


class Host(ABC):
    """Makes sandboxes while it is alive; `revive` restarts it."""

    leases: int = 0
    """Number of current leases in this host."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a sandbox can be started in this host."""

    @property
    def memory_mb(self) -> float | None:
        """Returns the resident memory of the host's processes, in MB; None if it has none."""
        return None

    async def healthy(self) -> bool:
        """Checks that the host still answers; otherwise, it is closed and started again."""
        return self.alive

    @abstractmethod
    async def revive(self) -> bool:
        """Starts the host if it is not alive.

        Returns:
            Whether a dead host was replaced.

        Raises:
            SandboxFailure: the host does not start.
        """

    @abstractmethod
    def sandbox(self) -> Sandbox:
        """Makes a new sandbox, which is not started yet."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the host."""


@final
class NoHost(Host):
    """A host for sandboxes that need no host process; it is always alive."""

    def __init__(self, make: Callable[[], Sandbox]) -> None:
        self._make = make

    @property
    def alive(self) -> bool:
        """Returns true."""
        return True

    async def revive(self) -> bool:
        """Does nothing."""
        return False

    def sandbox(self) -> Sandbox:
        """Makes a new sandbox."""
        return self._make()

    async def close(self) -> None:
        """Does nothing."""
        return


class HostProcess(Protocol):
    """A started process of a host."""

    @property
    def alive(self) -> bool:
        """Whether the process runs and accepts requests."""
        ...

    @property
    def pid(self) -> int:
        """Id of the process, whose descendants are the host's other processes."""
        ...

    async def end(self) -> None:
        """Ends the process and its descendants."""
        ...


def start_once(start: Callable[[], Awaitable[HostProcess]], hint: str) -> str:
    """Starts a process and ends it, for `flywheel doctor`; raises FlywheelError with the hint if it does not start."""

    async def tried() -> None:
        await (await start()).end()

    try:
        asyncio.run(tried())
    except SandboxFailure as error:
        raise FlywheelError(error.reason, hint) from error
    return "it started and answered"


P = TypeVar("P", bound=HostProcess)


class ProcessHost(Host, Generic[P]):
    """A process that is replaced when it dies, or when an answer is late."""

    broken: ClassVar[tuple[type[Exception], ...]] = (SandboxFailure,)
    """Errors of a health check that show a broken process; any other error is a fault of the check."""

    def __init__(self) -> None:
        self._process: P | None = None
        self._measured = -1, 0.0, 0.0
        """Pid, time and memory of the last measurement."""
        self._reviving = asyncio.Lock()

    @abstractmethod
    async def _launch(self) -> P:
        """Starts a process; raises SandboxFailure."""

    @abstractmethod
    async def _ask(self, process: P) -> object:
        """Sends a short request that a healthy process answers."""

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive

    @property
    def memory_mb(self) -> float | None:
        """Returns the memory of the process and its descendants, measured at most `MEASURED_S` ago, since each of its
        sandboxes asks."""
        if self._process is None:
            return None
        pid, now = self._process.pid, time.monotonic()
        if self._measured[0] != pid or now - self._measured[1] > MEASURED_S:
            self._measured = pid, now, memory_mb(pid)
        return self._measured[2]

    async def healthy(self) -> bool:
        """Checks whether the process answers; a stopped or hanging process is alive but does not."""
        if self._process is None:
            return False
        try:
            async with asyncio.timeout(ANSWERS_S):
                await self._ask(self._process)
        except (TimeoutError, *self.broken):
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
            self._process = await self._launch()
            return dead is not None

    async def close(self) -> None:
        """Ends the process."""
        async with self._reviving:
            if self._process is not None:
                await self._process.end()
                self._process = None
