"""Defines the status folder: messages between a training's starter and its ranks, on any number of machines.

It is a folder that all machines can access, or a prefix on S3, with small files that are each written at once. Rank 0
numbers its messages. Every rank and the starter send heartbeats (`Heartbeat`). A heartbeat is recognised by its change,
so clocks of two machines are never compared. Each start has its own folder, so messages of a process from an earlier
start are never read.

A rank that is stopped, or whose machine is lost, sends no more heartbeats. A rank that hangs in a collective sends
heartbeats but makes no steps. So the starter can distinguish both from working ranks. At every heartbeat, a rank checks
whether its start has ended. So an unreachable machine ends its ranks by itself, and two trainings never write to one
place.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from common.process import repeated
from schemas.failure import LakeError
from storage.objects import ObjectStore, open_store

BEATS, COMPLAINTS, MESSAGES = "beats", "complaints", "messages"
OVER, STARTER, ENDPOINT = "ended", "starter", "endpoint"
LONGEST_S = 5.0
"""Maximum seconds between two heartbeats."""
MIN_BEATS = 12
"""Minimum number of heartbeats within the time after which a rank counts as hung."""
ENDED = "ended"
"""Value of `doing` for a rank that will send no more heartbeats."""
ALONE = 2.0
"""Multiple of `train.hung_s` after which a rank ends without a heartbeat of the starter."""


class Heartbeat(BaseModel):
    """Heartbeat of a living rank."""

    model_config = ConfigDict(frozen=True)

    count: int
    """Number of heartbeats of this rank."""
    host: str
    process: int
    """Process id on the host."""
    doing: str
    """Phase of the rank; empty while it makes steps."""
    step: int
    """Number of steps made."""


class StatusFolder:
    """The status folder at a path or address.

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
        """Reads a message by its number, from 1; None if it does not exist yet."""
        return self._get(f"{MESSAGES}/{number:08d}")

    def beat(self, rank: int, beat: Heartbeat) -> None:
        """Writes a rank's heartbeat."""
        self._store.put(f"{BEATS}/{rank:05d}", beat.model_dump_json().encode())

    def beats(self) -> dict[int, Heartbeat]:
        """Reads the last heartbeat of every rank that has sent one."""
        names = sorted(name for name in self._store.sizes(BEATS) if "/." not in name)
        found = {int(name.rpartition("/")[2]): self._get(name) for name in names}
        return {rank: Heartbeat.model_validate(beat) for rank, beat in found.items() if beat is not None}

    def complain(self, who: str, problem: str) -> None:
        """Writes the reason, found by the machine or rank `who`, why no start can succeed."""
        self._put(f"{COMPLAINTS}/{who}", {"problem": problem})

    def complaints(self) -> list[str]:
        """Reads all complaints, each with its author."""
        names = sorted(name for name in self._store.sizes(COMPLAINTS) if "/." not in name)
        return [f"{name.rpartition('/')[2]}: {(self._get(name) or {}).get('problem', '')}" for name in names]

    def lead(self, address: str) -> str:
        """Returns the address at which the machines connect: the first caller's address."""
        return json.loads(self._store.put_or_get(ENDPOINT, json.dumps({"address": address}).encode()))["address"]

    def keep(self, count: int) -> None:
        """Writes the starter's heartbeat."""
        self._put(STARTER, {"count": count})

    def kept(self) -> int:
        """Reads the count of the starter's heartbeats."""
        return (self._get(STARTER) or {}).get("count", 0)

    def end(self) -> None:
        """Ends this start; every remaining rank then ends."""
        self._put(OVER, {})

    def ended(self) -> bool:
        """Checks whether this start has been ended."""
        return self._store.exists(OVER)

    def _put(self, name: str, fields: Mapping[str, object]) -> None:
        self._store.put(name, json.dumps(fields).encode())

    def _get(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads(self._store.get(name))
        except FileNotFoundError:
            return None


def every(hung_s: float) -> float:
    """Computes the seconds between two heartbeats."""
    return min(LONGEST_S, hung_s / MIN_BEATS)


class StallTimer:
    """Measures the seconds without a change of a value, not counting times when the machine slept.

    Args:
        longest_s: the maximum seconds counted between two polls.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s, self._seen, self._last = longest_s, object(), time.monotonic()
        self.idle_s = 0.0
        """Seconds since the last change."""

    def look(self, seen: object) -> float:
        """Compares with the last value; returns the seconds without change if it has changed, else 0."""
        now = time.monotonic()
        self.idle_s += min(now - self._last, self._longest_s)
        self._last = now
        if seen == self._seen:
            return 0.0
        stood, self._seen, self.idle_s = self.idle_s, seen, 0.0
        return stood


class HeartbeatThread:
    """Sends a rank's heartbeats; does nothing without a status folder, in a training started by hand.

    Args:
        board: the status folder of this start.
        rank: this rank.
        hung_s: `train.hung_s`.
    """

    def __init__(self, board: StatusFolder | None = None, rank: int = 0, hung_s: float = 60.0) -> None:
        self._board, self._rank, self._every, self._alone = board, rank, every(hung_s), ALONE * hung_s
        self._doing, self._step, self._count = "starting", 0, 0
        self._starter = StallTimer(2 * self._every)
        self._heartbeats = ExitStack()
        if board is not None:
            self._beat(board)
            self._heartbeats.enter_context(repeated(self._every, lambda: self._check(board), "heartbeat"))

    def step(self, step: int) -> None:
        """Sets the number of steps taken; the next step begins."""
        self._doing, self._step = "", step

    def rest(self, doing: str) -> None:
        """Marks the start of a phase other than steps, which may take long."""
        self._doing = doing

    def close(self) -> None:
        """Sends a last heartbeat."""
        self._heartbeats.close()
        if self._board is not None:
            self._doing = ENDED
            self._beat(self._board)

    def _check(self, board: StatusFolder) -> None:
        self._beat(board)
        with suppress(LakeError, OSError):
            if board.ended():
                os._exit(1)
            self._starter.look(board.kept())
        if self._starter.idle_s > self._alone:
            os._exit(1)

    def _beat(self, board: StatusFolder) -> None:
        self._count += 1
        beat = Heartbeat(
            count=self._count, host=socket.gethostname(), process=os.getpid(), doing=self._doing, step=self._step
        )
        with suppress(LakeError, OSError):  # the starter notices missing heartbeats
            board.beat(self._rank, beat)
