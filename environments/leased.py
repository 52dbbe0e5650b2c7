"""Which sandboxes this process has leased at this moment."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict


class Leased(BaseModel):
    """A sandbox that is in use."""

    model_config = ConfigDict(frozen=True)

    environment: str
    task_id: str
    seed: int
    since: float
    """When the lease began, in seconds since 1970."""


_held: dict[int, Leased] = {}
_numbers = itertools.count()


@contextmanager
def held(environment: str, task_id: str, seed: int) -> Iterator[None]:
    """Lists a lease while it lasts."""
    number = next(_numbers)
    _held[number] = Leased(environment=environment, task_id=task_id, seed=seed, since=time.time())
    try:
        yield
    finally:
        del _held[number]


def leased_now() -> tuple[Leased, ...]:
    """Those of this process, the oldest first."""
    return tuple(_held.copy().values())
