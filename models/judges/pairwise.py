"""Compares two trajectories of a task in both orders, as Seed1.5-VL's pairwise generative reward model does.

The answer for one order is the probability that the first trajectory is better. Scoring both orders cancels the bias
for a position (arXiv 2505.07062), so that the mean has p(a > b) + p(b > a) = 1 exactly. There is a winner only if both
orders agree.
"""

from dataclasses import dataclass
from typing import Literal

Winner = Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of a comparison; `probability` is None if the judge failed, and `reason` then holds the error."""

    probability: float | None
    """Probability that the first trajectory is better, averaged over both orders."""
    winner: Winner
    reason: str = ""


def both_orders(straight: float, swapped: float) -> Comparison:
    """Combines both orders into the comparison of a first and a second trajectory.

    Args:
        straight: P(the first trajectory is better) if it is shown first; in [0, 1].
        swapped: P(the second trajectory is better) if it is shown first; in [0, 1].
    """
    probability = (straight + 1 - swapped) / 2
    if straight > 0.5 > swapped:
        return Comparison(probability, "first")
    if swapped > 0.5 > straight:
        return Comparison(probability, "second")
    return Comparison(probability, "tie")
