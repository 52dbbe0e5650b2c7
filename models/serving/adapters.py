"""Tracks the adapters that a server has in addition to its own weights, and loads and unloads them."""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from models.serving.openai import NoAnswer
from models.serving.updater import Missing, Updater
from models.weights import OURS, Adapter, Weights
from schemas.failure import FlywheelError

KEPT = 2
"""Number of adapters that a server keeps, besides those still answering: the acting policy's and a compared one."""
_ALREADY = re.compile(r"already (been )?(loaded|exist)")
_NEVER = ('"Not Found"', "not enabled")
"""Words of a server that takes no adapter at all: FastAPI's for a path that it does not have, and SGLang's."""


@dataclass(frozen=True, slots=True)
class _LoadedAdapter:
    name: str
    base: str
    """Fingerprint of the weights that it belongs to."""
    listed: bool
    """Whether the server lists it among its models."""


class Adapters:
    """Adapters of one server; one thread at a time may change them, any may ask and forget.

    Args:
        updater: of the server.
        lock: the caller of `name` holds it until `busy` includes its request.
        note: takes a line for the server's log.
    """

    def __init__(self, updater: Updater, lock: threading.Condition, note: Callable[[str], None]) -> None:
        self._updater, self._lock, self._note = updater, lock, note
        self._held: dict[Weights, _LoadedAdapter] = {}
        self._refused: set[str] = set()
        self._takes = type(updater).add is not Updater.add
        self.slept = False
        """Whether the server slept since its list was last seen empty: entries that it still lists then are noise."""

    def forget(self) -> None:
        """Forgets the server's adapters, as they are unknown from now on."""
        with self._lock:
            self._held.clear()

    def name(self, weights: Weights, base: str) -> str | None:
        """Returns the server's name of an adapter, if it is loaded on weights of this fingerprint."""
        held = self._held.get(weights)
        return held.name if held is not None and held.base == base else None

    def may(self, weights: Weights) -> bool:
        """Checks whether it is worth asking the server to take them."""
        return self._takes and weights.name not in self._refused

    def take(self, weights: Weights, adapter: Adapter, busy: Callable[[Weights], bool]) -> bool:
        """Checks whether the server has an adapter; loads it if needed.

        Args:
            weights: the weights that it makes of its parent's.
            adapter: the folder and parent of the adapter.
            busy: whether a request of these weights is being answered: such adapters stay.

        Raises:
            NoAnswer: the server cannot be asked.
        """
        if not self.may(weights):
            return False
        name, models = weights.name, self._updater.control.models
        if not (listed := name in models()):
            self._spare(busy)
            try:
                self._updater.add(adapter.directory, name)
            except (Missing, FlywheelError) as refusal:
                if not _ALREADY.search(str(refusal)):
                    self._refuse(name, refusal)
                    return False
            listed = name in models()
        with self._lock:
            self._held.pop(weights, None)  # the newest is the last
            self._held[weights] = _LoadedAdapter(name, adapter.fingerprint, listed)
        return True

    def lost(self, weights: Weights, name: str) -> bool:
        """Checks whether this adapter is gone: found so before, or listed once and not any more."""
        with self._lock:
            held = self._held.get(weights)
        if held is None:
            return True
        with suppress(NoAnswer, FlywheelError):
            return held.listed and name not in self._updater.control.models()
        return False

    def unload(self) -> None:
        """Unloads all of them, also those of another process; one that stays nevertheless is never used.

        Raises:
            NoAnswer: the server cannot be asked.
        """
        self.forget()
        if self._takes:
            for name in self._there():
                self._remove(name)
            self._refused.update(self._there())
        self.slept = False

    def _there(self) -> list[str]:
        return [name for name in self._updater.control.models() if OURS.search(name)]

    def _spare(self, busy: Callable[[Weights], bool]) -> None:
        """Frees a place before another one comes: a server may have no more places than that."""
        with self._lock:
            spare = [one for one in list(self._held)[: 1 - KEPT] if not busy(one)]
            names = [self._held.pop(one).name for one in spare]
        for name in names:
            self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(NoAnswer, FlywheelError):
            self._updater.remove(name)

    def _refuse(self, name: str, why: Exception) -> None:
        self._takes = not any(words in str(why) for words in _NEVER)
        self._refused.add(name)
        self._note(f"the adapter {name} was not taken, so whole weights are loaded: {why}")
