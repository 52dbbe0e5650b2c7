"""A pause is a state of the lake, for people to look or decide: no process waits in it.

While it lasts nothing new is begun: a flow that turns the wheel or trains ends at the next boundary between two stages
(`tasks.running.boundary`), and goes on from there when it is started again after `flywheel resume`.
"""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.failure import LakeError, Paused
from schemas.table import utc_now
from schemas.text import Storable
from storage.lake import Lake

FILE = "control/pause.json"
"""Among the lake's blobs."""


class Pause(BaseModel):
    """Who paused a wheel, when and why."""

    model_config = ConfigDict(frozen=True)

    reason: Annotated[Storable, Field(min_length=1, max_length=500)]
    by: Annotated[Storable, Field(min_length=1, max_length=100)]
    since: datetime

    @property
    def text(self) -> str:
        """In a sentence on one line, without control characters."""
        return f"The wheel is paused since {self.since:%Y-%m-%d %H:%M} UTC by {_line(self.by)}: {_line(self.reason)}."

    def refusal(self) -> Paused:
        """The message for whoever wants to begin something."""
        return Paused(self.text, "After `flywheel resume` the same command goes on from here.")


def _line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()).rstrip(".")


def pause(lake: Lake, reason: str, by: str) -> Pause:
    """Pauses the lake's wheel; a pause that is there already gets this reason."""
    made = Pause(reason=reason, by=by, since=utc_now())
    lake.blobs.store.put(FILE, made.model_dump_json().encode())
    return made


def resume(lake: Lake) -> bool:
    """Ends the lake's pause; whether there was one."""
    store = lake.blobs.store
    there = store.exists(FILE)
    store.delete(FILE)
    return there


def pause_of(lake: Lake) -> Pause | None:
    """The lake's pause, or None where its wheel may turn.

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
    """Raises Paused where the lake's wheel is paused, with who did it, when and why."""
    if there := pause_of(lake):
        raise there.refusal()
