"""Computes the learning rate of a step, and lists AdamW's moments for saving, for all engines."""

import math

import torch
from torch import Tensor

from learning.engines.fsdp.moments import AdamW8bit
from schemas.config.training import TrainConfig


def learning_rate(step: int, steps: int, peak: float, train: TrainConfig) -> float:
    """Computes the learning rate: linear warmup to `peak`, a plateau, then a decay to `train.floor` of the peak.

    The decay covers the last share `train.decay` of the steps, linearly or as a cosine; there is none for 0.

    The next iteration starts from these weights, so most steps should have a high rate (warmup-stable-decay, Hu et al.,
    arXiv 2404.06395). A cosine over all steps is the schedule of Loshchilov and Hutter (arXiv 1608.03983) without
    restarts.
    """
    warmup, decay, floor = train.warmup, train.decay, train.floor
    if step < warmup:
        return peak * (step + 1) / warmup
    if decay == 0:
        return peak
    left = min(1.0, (steps - 1 - step) / max(1.0, min(decay * steps, steps - warmup)))
    if train.shape == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    return peak * (floor + (1 - floor) * left)


def moments_of(adam: torch.optim.AdamW, weight: Tensor) -> dict[str, Tensor]:
    """Returns AdamW's state of a weight; zeros before the first step."""
    state = adam.state[weight]
    if not state and isinstance(adam, AdamW8bit):
        state.update(adam.begun(weight))
    elif not state:
        state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device if adam.defaults["fused"] else "cpu")
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
    return state
