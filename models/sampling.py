"""Chooses the next token of every row of a batch with the row's own random numbers."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor


def choose(logits: Tensor, draws: Sequence[random.Random], temperature: float) -> tuple[Tensor, Tensor]:
    """Chooses the next token of each row: sampled from the whole distribution, or the likeliest at temperature 0.

    Args:
        logits: (rows, tokens).
        draws: random number generator of each row, used if the temperature is above 0.
        temperature: divisor of the logits; at 0, the log probabilities use a divisor of 1.

    Returns:
        The tokens, (rows,), and the log probabilities of all tokens, (rows, tokens), in double precision.
    """
    targets = None
    if temperature:
        targets = torch.tensor([[draw.random()] for draw in draws], dtype=torch.float64, device=logits.device)
    return choose_drawn(logits, targets, temperature)


def choose_drawn(logits: Tensor, targets: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    """Chooses as `choose` does, with random numbers of [0, 1) that are drawn already, (rows, 1)."""
    shares = (logits.double() / (temperature or 1.0)).log_softmax(-1)
    if targets is None or temperature == 0:
        return shares.argmax(-1), shares
    cumulated = shares.exp().cumsum(-1)
    chosen = torch.searchsorted(cumulated, targets * cumulated[:, -1:]).clamp(max=shares.shape[1] - 1)
    return chosen[:, 0], shares
