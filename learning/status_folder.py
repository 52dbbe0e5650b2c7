"""Where a start of a training and whoever started it leave each other word, on however many machines it runs.

A board is a folder that all of them reach, or a place on S3: small files, each written whole. Rank 0 numbers its
messages. Every rank beats (`Heartbeat`), and whoever started them does: what counts is that a beat differs from the one
before, so no two clocks are compared. Each start has a board of its own, so whoever outlives its start is read no more.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from storage.objects import ObjectStore, open_store

BEATS, COMPLAINTS, MESSAGES = "beats", "complaints", "messages"
ENDED, STARTER, ENDPOINT = "ended", "starter", "endpoint"


class Heartbeat(BaseModel):
    """What a rank tells while it lives."""

    model_config = ConfigDict(frozen=True)

    count: int
    """Of this rank's beats."""
    host: str
    process: int
    """Its id there."""
    doing: str
    """What it is about; empty while it takes steps."""
    step: int
    """How many steps it has taken."""


class StatusFolder:
    """The board at a place.

    Args:
        place: a folder, or an address such as `s3://bucket/prefix`, reached as the environment says.
    """

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        self._store: ObjectStore = open_store(place)
        self._sent: int | None = None

    def send(self, fields: Mapping[str, object]) -> None:
        """Leaves a message behind those that are there; rank 0 alone calls it."""
        if self._sent is None:
            self._sent = len(self._store.sizes(MESSAGES))
        self._sent += 1
        self._put(f"{MESSAGES}/{self._sent:08d}", fields)

    def message(self, number: int) -> dict[str, Any] | None:
        """A message by its number, from 1; None if it is not there yet."""
        return self._get(f"{MESSAGES}/{number:08d}")

    def beat(self, rank: int, beat: Heartbeat) -> None:
        """Says that a rank lives."""
        self._store.put(f"{BEATS}/{rank:05d}", beat.model_dump_json().encode())

    def beats(self) -> dict[int, Heartbeat]:
        """The last beat of every rank that has beaten."""
        names = sorted(name for name in self._store.sizes(BEATS) if "/." not in name)
        found = {int(name.rpartition("/")[2]): self._get(name) for name in names}
        return {rank: Heartbeat.model_validate(beat) for rank, beat in found.items() if beat is not None}

    def complain(self, who: str, problem: str) -> None:
        """Says why this start cannot go well, nor another: its own machine or rank has found it out."""
        self._put(f"{COMPLAINTS}/{who}", {"problem": problem})

    def complaints(self) -> list[str]:
        """All that were made, each with who made it."""
        names = sorted(name for name in self._store.sizes(COMPLAINTS) if "/." not in name)
        return [f"{name.rpartition('/')[2]}: {(self._get(name) or {}).get('problem', '')}" for name in names]

    def lead(self, address: str) -> str:
        """The address at which the machines meet: of whoever asks first, its own."""
        return json.loads(self._store.put_or_get(ENDPOINT, json.dumps({"address": address}).encode()))["address"]

    def keep(self, count: int) -> None:
        """Says that whoever started this lives."""
        self._put(STARTER, {"count": count})

    def kept(self) -> int:
        """How often that was said."""
        return (self._get(STARTER) or {}).get("count", 0)

    def end(self) -> None:
        """Ends this start: every rank that is left sees it and goes."""
        self._put(ENDED, {})

    def ended(self) -> bool:
        """Whether it is to end."""
        return self._store.exists(ENDED)

    def _put(self, name: str, fields: Mapping[str, object]) -> None:
        self._store.put(name, json.dumps(fields).encode())

    def _get(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads(self._store.get(name))
        except FileNotFoundError:
            return None
