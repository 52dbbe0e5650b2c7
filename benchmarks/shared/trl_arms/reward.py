"""What an answer of a random model is worth in the comparison, by its tokens alone, so that both sides reward alike."""

from collections.abc import Sequence


def worth(tokens: Sequence[int]) -> float:
    """1 for an even sum of token ids, else 0: half of a group's answers, whatever the model."""
    return float(sum(tokens) % 2 == 0)
