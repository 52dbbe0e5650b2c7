"""Reward the replies of a random model by their tokens alone, alike on both sides."""

from collections.abc import Sequence


def worth(tokens: Sequence[int]) -> float:
    """Return 1 for an even sum of token ids, else 0: for half of a group's replies, whatever the model."""
    return float(sum(tokens) % 2 == 0)
