"""Status folder: messages between a start of a training and its ranks, on any number of machines.

It is a folder that all of them reach, or a place on S3: small files, each written whole. Rank 0 numbers its messages.
Every rank and the starter send heartbeats (`Heartbeat`). A heartbeat is recognised by its change, so no two clocks are
compared. Each start has a folder of its own, so a process that outlives its start is not read any more.
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
    """Heartbeat of a living rank."""

    model_config = ConfigDict(frozen=True)

    count: int
    """Number of heartbeats of this rank."""
    host: str
    process: int
    """Process id on that host."""
    doing: str
    """Phase of the rank; empty while it takes steps."""
    step: int
    """Number of steps that it has taken."""


class StatusFolder:
    """The status folder at a place.

    Args:
        place: a folder, or an address such as `s3://bucket/prefix`; the environment holds its settings.
    """

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        self._store: ObjectStore = open_store(place)
        self._sent: int | None = None

    def send(self, fields: Mapping[str, object]) -> None:
        """Appends a message; only rank 0 calls it."""
        if self._sent is None:
            self._sent = len(self._store.sizes(MESSAGES))
        self._sent += 1
        self._put(f"{MESSAGES}/{self._sent:08d}", fields)

    def message(self, number: int) -> dict[str, Any] | None:
        """Reads a message by its number, from 1; None if it is not there yet."""
        return self._get(f"{MESSAGES}/{number:08d}")

    def beat(self, rank: int, beat: Heartbeat) -> None:
        """Writes a rank's heartbeat."""
        self._store.put(f"{BEATS}/{rank:05d}", beat.model_dump_json().encode())

    def beats(self) -> dict[int, Heartbeat]:
        """Reads the last heartbeat of every rank that sent one."""
        names = sorted(name for name in self._store.sizes(BEATS) if "/." not in name)
        found = {int(name.rpartition("/")[2]): self._get(name) for name in names}
        return {rank: Heartbeat.model_validate(beat) for rank, beat in found.items() if beat is not None}

    def complain(self, who: str, problem: str) -> None:
        """Writes why neither this nor another start can succeed, as the machine or rank `who` has found out."""
        self._put(f"{COMPLAINTS}/{who}", {"problem": problem})

    def complaints(self) -> list[str]:
        """Reads all complaints, each with its author."""
        names = sorted(name for name in self._store.sizes(COMPLAINTS) if "/." not in name)
        return [f"{name.rpartition('/')[2]}: {(self._get(name) or {}).get('problem', '')}" for name in names]

    def lead(self, address: str) -> str:
        """Returns the address at which the machines meet: the first caller's own."""
        return json.loads(self._store.put_or_get(ENDPOINT, json.dumps({"address": address}).encode()))["address"]

    def keep(self, count: int) -> None:
        """Writes the starter's heartbeat."""
        self._put(STARTER, {"count": count})

    def kept(self) -> int:
        """Reads the count of the starter's heartbeats."""
        return (self._get(STARTER) or {}).get("count", 0)

    def end(self) -> None:
        """Ends this start: every rank that is left sees it and ends."""
        self._put(ENDED, {})

    def ended(self) -> bool:
        """Checks whether this start is to end."""
        return self._store.exists(ENDED)

    def _put(self, name: str, fields: Mapping[str, object]) -> None:
        self._store.put(name, json.dumps(fields).encode())

    def _get(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads(self._store.get(name))
        except FileNotFoundError:
            return None
