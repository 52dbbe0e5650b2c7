"""What the optimisers of all engines share: the learning rate of a step, and AdamW's moments as tensors to be saved."""

import torch
from torch import Tensor


def learning_rate(step: int, steps: int, peak: float, warmup: int, decay: float, floor: float = 0.05) -> float:
    """Linear warmup to `peak`, there it stays, then straight down to `floor` of it over the last `decay` of the steps.

    With a `decay` of 0 it never falls.

    The next iteration goes on from these weights, so many of its steps should move them far (warmup-stable-decay,
    Hu et al., arXiv 2404.06395).
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if decay == 0:
        return peak
    left = (steps - 1 - step) / max(1.0, decay * steps)
    return peak * (floor + (1 - floor) * min(1.0, left))


def moments_of(adam: torch.optim.AdamW, weight: Tensor) -> dict[str, Tensor]:
    """AdamW's state of a weight, begun with zeros if there was no step yet."""
    state = adam.state[weight]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device if adam.defaults["fused"] else "cpu")
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
    return state
