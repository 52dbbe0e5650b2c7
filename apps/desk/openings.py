"""Record which trajectory each reviewer has open, to spread reviewers over the queue and show others' open items.

Each desk has its own record, and nothing depends on it: if two reviewers decide on the same state, the second one gets
a conflict, on any desk (`tasks.shared.reviews`).
"""

import threading
import time
from collections.abc import Callable
from typing import Annotated
from urllib.parse import unquote

from fastapi import Cookie, Depends, Query

from tasks.shared.reviews import NAME

OPEN_S = 600.0
"""Seconds for which a reviewer's last opened item counts as open, unless the reviewer opens another."""


class Openings:
    """The open items; safe to share between threads.

    Args:
        now: returns the seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, str]] = {}
        """Time of each reviewer's last request and open item, in order of arrival."""

    def number(self, person: str) -> int:
        """Returns the index of a reviewer among the active ones, from 0; 0 for an empty name."""
        with self._lock:
            if not person:
                return 0
            _, item = self._here().get(person, (0.0, ""))
            self._seen[person] = (self._now(), item)
            return list(self._seen).index(person)

    def open(self, person: str, item: str) -> None:
        """Records that a reviewer has only this item open."""
        if person:
            with self._lock:
                self._here()
                self._seen[person] = (self._now(), item)

    def with_others(self, person: str) -> dict[str, str]:
        """Returns the items that other reviewers have open, with the reviewers' names."""
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
