"""Compute at which second of a trajectory each screen appeared and each action began, from the steps' durations."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.tables.step import RecordedStep

THINK_S, ACT_S = 1.0, 0.5
"""Seconds before and after the actions of a step without recorded durations, as in an imported trajectory."""
LEAST_S = 0.5
"""Minimum of these seconds, so that a model that sees two frames a second sees every screen."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds from a trajectory's start."""

    shown: tuple[tuple[float, str], ...]
    """Each screen of the steps, in order: when it appeared, and its sha256."""
    screens: tuple[float, ...]
    """When the screen before the actions of each step appeared."""
    began: tuple[float, ...]
    """When the actions of each step began."""
    seconds: float
    """Duration, until the last screen has been shown for `ACT_S`."""


def timeline(steps: Sequence[RecordedStep]) -> Timeline:
    """Compute the times of a trajectory's steps; the screens between actions share the time of the actions."""
    shown, screens, began, now = list[tuple[float, str]](), list[float](), list[float](), 0.0
    for step in steps:
        screens.append(now)
        shown.append((now, step.screenshot))
        now += max(LEAST_S, (step.observe_ms + step.think_ms) / 1000 or THINK_S)
        began.append(now)
        took = max(LEAST_S, step.act_ms / 1000 or ACT_S)
        shown += [(now + took * (at + 1) / (len(step.frames) + 1), one) for at, one in enumerate(step.frames)]
        now += took
    if steps and (last := steps[-1].next_screenshot):
        shown.append((now, last))
    return Timeline(tuple(shown), tuple(screens), tuple(began), now + ACT_S)
