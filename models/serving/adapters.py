"""The adapters that a server has beside its own weights: which of them may be asked for, and how they come and go."""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from models.serving.openai import NoAnswer, OpenAIClient
from models.serving.updater import Missing, Updater
from models.weights import OURS, Adapter, Weights
from schemas.failure import FlywheelError

KEPT = 2
"""How many a server keeps, beside those that still answer: the policy's that acts, and of another that is compared."""
_ALREADY = re.compile(r"already (been )?(loaded|exist)")
_NEVER = ('"Not Found"', "not enabled")
"""Words of a server that takes no adapter at all: FastAPI's for a path that it does not have, and SGLang's."""


@dataclass(frozen=True, slots=True)
class _Held:
    name: str
    beside: str
    """Fingerprint of the weights that it belongs to."""
    listed: bool
    """Whether the server lists it among its models."""


class Adapters:
    """Safe to read from any thread; one at a time may change it.

    Args:
        updater, client: of the server.
        note: takes a line for its log.
    """

    def __init__(self, updater: Updater, client: OpenAIClient, note: Callable[[str], None]) -> None:
        self._updater, self._client, self._note = updater, client, note
        self._lock = threading.Lock()
        self._held: dict[Weights, _Held] = {}
        self._refused: set[str] = set()
        self._taken = True

    def forget(self) -> None:
        """What the server has is not known any more."""
        with self._lock:
            self._held.clear()

    def renew(self) -> None:
        """The server was started: it has none, and may take what it did not."""
        self.forget()
        self._refused.clear()
        self._taken = True

    def name(self, weights: Weights, beside: str) -> str | None:
        """What the server calls them, if they are there beside weights of this fingerprint."""
        held = self._held.get(weights)
        return held.name if held is not None and held.beside == beside else None

    def take(self, weights: Weights, adapter: Adapter, busy: Callable[[Weights], bool]) -> bool:
        """Whether the server has an adapter, given it now if need be.

        Args:
            weights: that it makes of its parent's.
            adapter: where it is.
            busy: whether some answer now: those stay.

        Raises:
            NoAnswer: the server cannot be asked.
        """
        name = weights.name
        if not self._taken or name in self._refused:
            return False
        if name not in self._client.names():
            self._spare(busy)
            try:
                self._updater.add(adapter.directory, name)
            except (Missing, FlywheelError) as refusal:
                if not _ALREADY.search(str(refusal)):
                    self._refuse(name, refusal)
                    return False
        with self._lock:
            self._held.pop(weights, None)  # the newest is the last
            self._held[weights] = _Held(name, adapter.fingerprint, name in self._client.names())
        return True

    def lost(self, weights: Weights) -> bool:
        """Whether the server had an adapter and has it no more: it was started anew by others, or told to forget it."""
        held = self._held.get(weights)
        if held is None or not held.listed:
            return False
        with suppress(NoAnswer):
            return held.name not in self._client.names()
        return False

    def unload(self) -> None:
        """Takes all of them away, also those that another process has brought."""
        with suppress(NoAnswer):
            names = {held.name for held in self._held.values()} | set(filter(OURS.search, self._client.names()[1:]))
            self.forget()
            for name in names:
                self._remove(name)

    def _spare(self, busy: Callable[[Weights], bool]) -> None:
        """Makes room for one more, before it comes: a server may have no more room than that."""
        with self._lock:
            spare = [one for one in list(self._held)[: 1 - KEPT] if not busy(one)]
            names = [self._held.pop(one).name for one in spare]
        for name in names:
            self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(NoAnswer, FlywheelError):
            self._updater.remove(name)

    def _refuse(self, name: str, why: Exception) -> None:
        self._taken = not any(words in str(why) for words in _NEVER)
        self._refused.add(name)
        self._note(f"the adapter {name} was not taken, so whole weights are loaded: {why}")
