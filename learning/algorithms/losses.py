"""Computes log probabilities of targets as pure functions of logits.

A coordinate is a bin of the screen. Its target is spread over the neighbouring bins,

    q(k) proportional to exp(-(k - t)^2 / (2 sigma^2)),

where t is the exact place in bins. A near miss costs little, so the loss leads the network to the place. With plain
classes, the network would guess one of 101 unrelated classes. Decoding and text do not change.
"""

import torch
from torch import Tensor

ROWS = 512
"""Number of rows of logits whose entropies are computed at once."""


def soft_bins(places: Tensor, bins: int, sigma: float) -> Tensor:
    """Computes target shares (n, bins) of places (n,) in bins; with sigma 0, the nearest bin has the whole share."""
    distance = torch.arange(bins) - places[:, None]
    if sigma == 0:
        return torch.nn.functional.one_hot(distance.abs().argmin(1), bins).float()
    return (-(distance**2) / (2 * sigma**2)).softmax(-1)


def token_logprobs(logits: Tensor, targets: Tensor, temperatures: Tensor | None = None) -> Tensor:
    """Computes log probs (n,) of (n,) ids under (n, vocabulary) logits, divided by (n,) temperatures if given."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperatures is not None:
        wide = wide / temperatures[:, None].to(wide.dtype)
    return -torch.nn.functional.cross_entropy(wide, targets, reduction="none")


@torch.no_grad()
def entropies(logits: Tensor, temperatures: Tensor | None = None) -> Tensor:
    """Computes entropies (n,), in nats, of (n, vocabulary) logits, divided by (n,) temperatures if given.

    It works in blocks of rows, so that only one block of probabilities is in memory in addition to the logits.
    """
    divisors = temperatures if temperatures is not None else torch.ones(len(logits), device=logits.device)
    found = [
        torch.special.entr((rows.float() / divisor[:, None]).softmax(-1)).sum(-1)
        for rows, divisor in zip(logits.split(ROWS), divisors.float().split(ROWS), strict=True)
    ]
    return torch.cat(found) if found else torch.zeros(0, device=logits.device)


def place_logprobs(logits: Tensor, places: Tensor, first: Tensor, bins: int, sigma: float) -> Tensor:
    """Computes minus the cross entropy against soft bins, (n,): the mean log probability of a place's bins.

    Args:
        logits: (n, vocabulary).
        places: exact targets in bins, (n,).
        first: the token id of each target's bin 0, (n,); the bins of a family have consecutive ids.
        bins: bins per family.
        sigma: spread in bins.
    """
    shares = logits.float().log_softmax(-1).gather(1, first[:, None] + torch.arange(bins))
    return (soft_bins(places, bins, sigma) * shares).sum(-1)
