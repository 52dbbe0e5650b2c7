"""A pause is a state of the lake, for people to look or decide: no process waits in it.

While it lasts nothing new begins: a flow that runs iterations or trains ends at the next boundary between two stages
(`tasks.running.boundary`), and continues from there when it is started again after `flywheel resume`.
"""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.text import Storable
from schemas.failure import LakeError, Paused
from schemas.table import utc_now
from storage.lake import Lake

FILE = "control/pause.json"
"""Name among the lake's blobs."""


class Pause(BaseModel):
    """A pause, with its author, time and reason."""

    model_config = ConfigDict(frozen=True)

    reason: Annotated[Storable, Field(min_length=1, max_length=500)]
    by: Annotated[Storable, Field(min_length=1, max_length=100)]
    since: datetime

    @property
    def text(self) -> str:
        """The message in one line, without control characters."""
        return f"The wheel is paused since {self.since:%Y-%m-%d %H:%M} UTC by {_line(self.by)}: {_line(self.reason)}."

    def refusal(self) -> Paused:
        """Return the error for a command that would begin something."""
        return Paused(self.text, "After `flywheel resume` the same command goes on from here.")


def _line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()).rstrip(".")


def pause(lake: Lake, reason: str, by: str) -> Pause:
    """Pause the lake; an existing pause gets this reason."""
    made = Pause(reason=reason, by=by, since=utc_now())
    lake.blobs.store.put(FILE, made.model_dump_json().encode())
    return made


def resume(lake: Lake) -> bool:
    """End the lake's pause; return whether there was one."""
    store = lake.blobs.store
    there = store.exists(FILE)
    store.delete(FILE)
    return there


def pause_of(lake: Lake) -> Pause | None:
    """Return the lake's pause, or None.

    Raises:
        LakeError: its file cannot be read.
    """
    try:
        return Pause.model_validate_json(lake.blobs.store.get(FILE))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise LakeError(f"{FILE} of the lake at {lake.uri} is no pause.", "`flywheel resume` removes it.") from error


def require_unpaused(lake: Lake) -> None:
    """Raise Paused where the lake is paused; the message has author, time and reason."""
    if there := pause_of(lake):
        raise there.refusal()
