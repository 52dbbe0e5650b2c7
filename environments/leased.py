"""List the sandboxes that this process currently leases."""

import itertools
import os
import socket
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field


class Leased(BaseModel):
    """A leased sandbox."""

    model_config = ConfigDict(frozen=True)

    host: str = Field(default_factory=socket.gethostname)
    """The machine's name."""
    process: int = Field(default_factory=os.getpid)
    """Process that leased it, on that host."""
    lease: int = 0
    """Counted from 1 in each process."""
    environment: str
    kind: str = ""
    """Kind of that environment, such as `miniwob` or `desktop`."""
    task_id: str
    seed: int
    trajectory_id: str = ""
    """The trajectory that is rolled out in it; empty if it is leased for another purpose."""
    since: float
    """Start of the lease, in seconds since 1970."""
    silent_s: float = 0.0
    """Seconds since the last request of its owner."""
    host_mb: float | None = None
    """Memory of its host, such as a browser, in MB; other sandboxes may share it. None if it has no host process."""
    own_mb: float | None = None
    """Memory of its own processes, such as a desktop's or a shell's, in MB, without the host's. None if it has none."""


_held: dict[int, Callable[[], Leased]] = {}
_numbers = itertools.count(1)


def list_lease(shown: Callable[[int], Leased]) -> int:
    """Lists a lease until `unlist_lease`.

    Args:
        shown: returns the lease's current state, given its number.

    Returns:
        The number.
    """
    number = next(_numbers)
    _held[number] = lambda: shown(number)
    return number


def unlist_lease(number: int) -> None:
    """Removes a lease from the list, if it is there."""
    _held.pop(number, None)


def leased_now() -> tuple[Leased, ...]:
    """The leases of this process, the oldest first."""
    return tuple(shown() for shown in _held.copy().values())
