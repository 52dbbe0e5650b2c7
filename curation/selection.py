"""Select the steps of an accepted trajectory to imitate: the shortest path through its screens.

A random explorer takes detours. If a later screen equals an earlier one pixel by pixel, the steps in between are a
detour, which is removed from targets and history. An action that changed nothing is a detour of one step; UI-TARS's
rule filter drops such actions, too. The last step is always kept, since the verifier rewarded it.

Equal screens before and after a note are not the same, because the policy knows more. So a note, and the steps that led
to it, are no detour.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate
from typing import Protocol


class ScreenedStep(Protocol):
    """A step with the screen before it."""

    @property
    def screenshot(self) -> str:
        """Return the sha256 of the screen."""
        ...

    @property
    def actions(self) -> Sequence[str]:
        """Return the canonical JSON of each action."""
        ...


def noted_screens(steps: Iterable[ScreenedStep]) -> list[tuple[str, int]]:
    """Return the state before each step: the screen's sha256, and the number of the policy's notes so far."""
    steps = list(steps)
    notes = accumulate((sum(map(_is_note, step.actions)) for step in steps), initial=0)
    return [(step.screenshot, count) for step, count in zip(steps, notes, strict=False)]


def _is_note(action: str) -> bool:
    """Check whether the canonical JSON of an action is a note's, whose type comes last."""
    return action.endswith('"type":"note"}')


def shortest_way(states: Sequence[Hashable]) -> list[int]:
    """Return the indices of the kept steps.

    Args:
        states: the states before each of the n steps, such as the screens, or those of `noted_screens`.

    Returns:
        Increasing indices in [0, n), ending with n - 1; following them leads from the first state to the end.
    """
    last_seen = {state: position for position, state in enumerate(states)}
    kept: list[int] = []
    position = 0
    while position < len(states):
        position = last_seen[states[position]]
        kept.append(position)
        position += 1
    return kept
