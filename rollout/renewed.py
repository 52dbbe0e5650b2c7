"""A policy whose weights are renewed while it plays: trajectories that are under way go on under the newer ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from models.policy import Context, Policy, Reply


class RenewedPolicy(Policy):
    """Looks for newer weights before each batch of contexts; every reply names the version that gave it.

    Args:
        first: who plays at first; dialect and what must be shown stay its own.
        newer: a newer policy, or None if there is none.
    """

    def __init__(self, first: Policy, newer: Callable[[], Policy | None]) -> None:
        self.version, self.dialect, self.needs_elements = first.version, first.dialect, first.needs_elements
        self._now, self._newer = first, newer

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Reply]:
        """One reply per context, all by the newest weights there are."""
        self._now = self._newer() or self._now
        return [replace(reply, version=self._now.version) for reply in self._now.act(contexts, temperature)]
