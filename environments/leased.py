"""List the sandboxes that this process currently leases."""

import itertools
import os
import socket
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field


class Leased(BaseModel):
    """A leased sandbox."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    host: str = Field(default_factory=socket.gethostname)
    """Name of the machine."""
    process: int = Field(default_factory=os.getpid)
    """Process on the host that leased the sandbox."""
    lease: int = 0
    """Number of the lease in its process, from 1."""
    environment: str
    kind: str = ""
    """Kind of the environment, such as `miniwob` or `desktop`."""
    task_id: str
    seed: int
    trajectory_id: str = ""
    """The trajectory in the sandbox; empty if it is leased for another purpose."""
    since: float
    """Start of the lease, in seconds since 1970."""
    silent_s: float = 0.0
    """Seconds since the owner's last request."""
    host_mb: float | None = None
    """Memory of the host, such as a browser, in MB; other sandboxes may share it. None without a host process."""
    own_mb: float | None = None
    """Memory of the sandbox's own processes, such as a desktop's or a shell's, in MB, without the host's; None without
    processes."""


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
    """Removes a lease from the list, if it is listed."""
    _held.pop(number, None)


def leased_now() -> tuple[Leased, ...]:
    """Returns the leases of this process, the oldest first."""
    return tuple(shown() for shown in _held.copy().values())
