"""Pause and resume a lake. A pause is a state of the lake, and no process waits for its end.

While a lake is paused, no new work starts. A flow that runs iterations or trains ends at the next boundary between two
stages (`tasks.running.boundary`). After `flywheel resume`, the same command continues from this boundary.
"""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.text import Storable
from schemas.failure import LakeError, Paused
from schemas.table import utc_now
from storage.lake import Lake

FILE = "control/pause.json"
"""File of the pause, among the lake's blobs."""


class Pause(BaseModel):
    """A pause, with its author, time and reason."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    reason: Annotated[Storable, Field(min_length=1, max_length=500)]
    by: Annotated[Storable, Field(min_length=1, max_length=100)]
    since: datetime

    @property
    def text(self) -> str:
        """Returns the message in one line, without control characters."""
        return f"The lake is paused since {self.since:%Y-%m-%d %H:%M} UTC by {_line(self.by)}: {_line(self.reason)}."

    def refusal(self) -> Paused:
        """Return the error for a command that would start new work."""
        return Paused(self.text, "After `flywheel resume`, the same command continues.")


def _line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()).rstrip(".")


def pause(lake: Lake, reason: str, by: str) -> Pause:
    """Pause the lake. If the lake is already paused, replace the reason."""
    made = Pause(reason=reason, by=by, since=utc_now())
    lake.blobs.store.put(FILE, made.model_dump_json().encode())
    return made


def resume(lake: Lake) -> bool:
    """End the pause of the lake, and return whether the lake was paused."""
    store = lake.blobs.store
    there = store.exists(FILE)
    store.delete(FILE)
    return there


def pause_of(lake: Lake) -> Pause | None:
    """Return the pause of the lake, or None.

    Raises:
        LakeError: the file of the pause cannot be read.
    """
    try:
        return Pause.model_validate_json(lake.blobs.store.get(FILE))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise LakeError(f"{FILE} of the lake at {lake.uri} is no pause.", "`flywheel resume` removes it.") from error


def require_unpaused(lake: Lake) -> None:
    """Raise Paused if the lake is paused. The message has the author, time and reason."""
    if there := pause_of(lake):
        raise there.refusal()
