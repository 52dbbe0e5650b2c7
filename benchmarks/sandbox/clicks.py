"""Define the policy of all sides and their counts. BrowserGym's Python reads it: the standard library alone."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

MAX_STEPS = 10
TOP = 50 / 210
"""Where the instruction ends, as a fraction of the screen."""


@dataclass
class Tally:
    """What was made in how long."""

    trajectories: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def clicks(seed: int) -> Iterator[tuple[float, float]]:
    """Up to ten points, in fractions of the screen."""
    chance = random.Random(seed)
    for _ in range(MAX_STEPS):
        yield chance.random(), TOP + (1 - TOP) * chance.random()
