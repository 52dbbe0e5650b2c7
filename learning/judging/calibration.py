"""Calibrates a network's logits: scores that are probabilities, and the threshold from which one is accepted.

Both are chosen on trajectories that the network was not trained on.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def platt(logits: Tensor, known: Tensor) -> tuple[float, float]:
    """Computes scale and shift of logits with the least cross entropy (Platt, 1999).

    Args:
        logits: (n,) of a trained network.
        known: (n,) 0 or 1.
    """
    both = torch.zeros(2, requires_grad=True)
    with torch.no_grad():
        both[0] = 1.0
    optimiser = torch.optim.LBFGS([both], lr=0.5, max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.binary_cross_entropy_with_logits(both[0] * logits + both[1], known) + 1e-4 * both.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return float(both[0].detach()), float(both[1].detach())


def best_threshold(scores: Tensor, known: Tensor) -> float:
    """Finds the threshold in steps of 0.01 with the best F1; of equal ones the highest, which accepts the least."""
    grid = [number / 100 for number in range(5, 96)]
    return max(grid, key=lambda one: (_f1(scores >= one, known > 0), one))


def _f1(accepted: Tensor, known: Tensor) -> float:
    return 2 * int((accepted & known).sum()) / max(1, int(accepted.sum() + known.sum()))
