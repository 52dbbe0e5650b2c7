"""Define hosts of sandboxes, such as a browser that is replaced when it dies; a host may have no process."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from environments.sandbox import Sandbox


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
