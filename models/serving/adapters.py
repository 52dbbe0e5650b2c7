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
"""Number of adapters that a server keeps in addition to adapters that still answer: the acting policy's and a compared
policy's."""
_ALREADY = re.compile(r"already (been )?(loaded|exist)")
_NEVER = ('"Not Found"', "not enabled")
"""Messages of servers that accept no adapter: FastAPI's for an unknown path, and SGLang's."""


@dataclass(frozen=True, slots=True)
class _LoadedAdapter:
    name: str
    base: str
    """Fingerprint of the adapter's base weights."""
    listed: bool
    """Whether the server lists the adapter among its models."""


class Adapters:
    """Adapters of one server; one thread at a time may change them, and any thread may call `name`, `may` and `forget`.

    Args:
        updater: the server's updater.
        lock: the caller of `name` holds it until `busy` includes its request.
        note: writes a line to the server's log.
    """

    def __init__(self, updater: Updater, lock: threading.Condition, note: Callable[[str], None]) -> None:
        self._updater, self._lock, self._note = updater, lock, note
        self._held: dict[Weights, _LoadedAdapter] = {}
        self._refused: set[str] = set()
        self._takes = type(updater).add is not Updater.add
        self.slept = False
        """Whether the server slept since its list was last empty. Entries that it still lists are then meaningless."""

    def forget(self) -> None:
        """Forgets the server's adapters, since their state is unknown from now on."""
        with self._lock:
            self._held.clear()

    def name(self, weights: Weights, base: str) -> str | None:
        """Returns the server's name of an adapter, if it is loaded on weights of this fingerprint."""
        held = self._held.get(weights)
        return held.name if held is not None and held.base == base else None

    def may(self, weights: Weights) -> bool:
        """Checks whether the server may accept these weights as an adapter."""
        return self._takes and weights.name not in self._refused

    def take(self, weights: Weights, adapter: Adapter, busy: Callable[[Weights], bool]) -> bool:
        """Checks whether the server has an adapter; loads it if needed.

        Args:
            weights: the weights that result from the adapter and its parent.
            adapter: the folder and parent of the adapter.
            busy: tells whether the server is answering a request with given weights; such adapters stay.

        Raises:
            NoAnswer: the server does not answer.
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
            self._held.pop(weights, None)  # keeps the newest last
            self._held[weights] = _LoadedAdapter(name, adapter.fingerprint, listed)
        return True

    def lost(self, weights: Weights, name: str) -> bool:
        """Checks whether this adapter is gone: because it was found to be, or because the server no longer lists it."""
        with self._lock:
            held = self._held.get(weights)
        if held is None:
            return True
        with suppress(NoAnswer, FlywheelError):
            return held.listed and name not in self._updater.control.models()
        return False

    def unload(self) -> None:
        """Unloads all adapters, including other processes' adapters. An adapter that the server keeps is never used.

        Raises:
            NoAnswer: the server does not answer.
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
        """Unloads an adapter before the next one is loaded, since a server may have room for only `KEPT` adapters."""
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
