"""Record which trajectory each person has open, so that people spread over the queue and see each other's items.

The record is this desk's alone and nothing depends on it: of two people who decide on one state the second gets a
conflict, on any desk (`tasks.shared.reviews`).
"""

import threading
import time
from collections.abc import Callable
from typing import Annotated
from urllib.parse import unquote

from fastapi import Cookie, Depends, Query

from tasks.shared.reviews import NAME

OPEN_S = 600.0
"""Seconds for which the last opened item of a person counts as open, unless they open another."""


class Openings:
    """The open items; safe to share between threads.

    Args:
        now: seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, str]] = {}
        """The time of each person's last request and their open item, in order of arrival."""

    def number(self, person: str) -> int:
        """The index of a person among the active ones, from 0; 0 for an empty name."""
        with self._lock:
            if not person:
                return 0
            _, item = self._here().get(person, (0.0, ""))
            self._seen[person] = (self._now(), item)
            return list(self._seen).index(person)

    def open(self, person: str, item: str) -> None:
        """Notes that a person has an item open, and no other."""
        if person:
            with self._lock:
                self._here()
                self._seen[person] = (self._now(), item)

    def with_others(self, person: str) -> dict[str, str]:
        """The items that other people have open, with their names."""
        with self._lock:
            return {item: who for who, (_, item) in self._here().items() if item and who != person}

    def _here(self) -> dict[str, tuple[float, str]]:
        since = self._now() - OPEN_S
        for gone in [who for who, (at, _) in self._seen.items() if at < since]:
            del self._seen[gone]
        return self._seen


def _name(person: Annotated[str, Query()] = "", kept: Annotated[str, Cookie(alias="person")] = "") -> str:
    found = person or unquote(kept)
    return found if NAME.fullmatch(found) else ""


Asking = Annotated[str, Depends(_name)]
"""The person of a request: `person` of the address, or the name that the page keeps; empty if unknown."""
