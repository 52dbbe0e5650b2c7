"""Two trajectories of one task, shown to a judge in both orders: Seed1.5-VL's pairwise generative reward model.

The answer for one order is P(the one shown first is better). Both orders are scored to cancel the bias for a position
(arXiv 2505.07062): the mean has p(a > b) + p(b > a) = 1 exactly. A winner is named only where both orders
name it.
"""

from dataclasses import dataclass
from typing import Literal

Winner = Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of a comparison; `probability` is None if the judge failed, and `reason` then holds the error."""

    probability: float | None
    """Probability that the first one is better, over both orders."""
    winner: Winner
    reason: str = ""


def both_orders(straight: float, swapped: float) -> Comparison:
    """Combines both orders into the comparison of a first and a second trajectory.

    Args:
        straight: P(the first is better), the first shown first; in [0, 1].
        swapped: P(the second is better), the second shown first; in [0, 1].
    """
    probability = (straight + 1 - swapped) / 2
    if straight > 0.5 > swapped:
        return Comparison(probability, "first")
    if swapped > 0.5 > straight:
        return Comparison(probability, "second")
    return Comparison(probability, "tie")
