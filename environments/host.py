"""What sandboxes live in: a browser that may die and is then replaced, or nothing at all."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from environments.sandbox import Sandbox


class Host(ABC):
    """Makes sandboxes while it is alive; `revive` makes it alive again."""

    leases: int = 0
    """How many sandboxes are leased in it now."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a sandbox can be started in it."""

    @property
    def memory_mb(self) -> float | None:
        """What its processes hold of this machine's memory, in MB; None where it has none of its own."""
        return None

    async def healthy(self) -> bool:
        """Whether it still answers; what does not is closed, and begun again."""
        return self.alive

    @abstractmethod
    async def revive(self) -> bool:
        """Brings it to life if it is not; says whether a dead one was replaced. Raises SandboxFailure."""

    @abstractmethod
    def sandbox(self) -> Sandbox:
        """A new sandbox in it, not yet started."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it."""


@final
class NoHost(Host):
    """For sandboxes that need nothing to live in: always alive."""

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
