"""Define the host of sandboxes: a browser that is replaced when it dies, or no process at all."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from environments.sandbox import Sandbox


class Host(ABC):
    """Makes sandboxes while it is alive; `revive` makes it alive again."""

    leases: int = 0
    """Number of current leases in it."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a sandbox can be started in it."""

    @property
    def memory_mb(self) -> float | None:
        """Resident memory of its processes, in MB; None if it has no processes of its own."""
        return None

    async def healthy(self) -> bool:
        """Checks that it still answers; a host that does not is closed and started again."""
        return self.alive

    @abstractmethod
    async def revive(self) -> bool:
        """Starts it if it is not alive.

        Returns:
            Whether a dead host was replaced.

        Raises:
            SandboxFailure: it does not start.
        """

    @abstractmethod
    def sandbox(self) -> Sandbox:
        """A new sandbox in it, not yet started."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it."""


@final
class NoHost(Host):
    """The host of sandboxes without a process of their own: always alive."""

    def __init__(self, make: Callable[[], Sandbox]) -> None:
        self._make = make

    @property
    def alive(self) -> bool:
        """Always."""
        return True

    async def revive(self) -> bool:
        """Nothing to do."""
        return False

    def sandbox(self) -> Sandbox:
        """A new one."""
        return self._make()

    async def close(self) -> None:
        """Nothing to end."""
        return
