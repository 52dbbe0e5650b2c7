"""One run at a time turns a lake's iterations: two would turn the same one twice."""

from collections.abc import Iterator
from contextlib import contextmanager

from storage.lake import Lake
from tasks.shared import holding
from tasks.shared.holding import Holder

FOLDER = "claims/run"


@contextmanager
def turning(lake: Lake) -> Iterator[None]:
    """Keeps others from turning the lake's iterations within.

    Raises:
        UsageError: another run does; names its machine and process.
    """
    with holding.holding(lake, FOLDER):
        yield


def require_free(lake: Lake) -> None:
    """Raises UsageError where a run turns the lake's iterations, naming it."""
    holding.require_free(lake, FOLDER)


def turn_of(lake: Lake) -> Holder | None:
    """The run that turns the lake's iterations now, or None."""
    return holding.holder(lake, FOLDER)
