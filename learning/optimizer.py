"""AdamW over one flat weight: the network computes in bf16, the optimiser keeps what it learns in fp32.

A bf16 weight has 8 bits: a step of 1e-3 of its size would be rounded away, so the fp32 copy is the one that moves.
"""

import math

import torch
from torch import Tensor

from schemas.config.sections import TrainConfig


class FlatAdamW:
    """Updates `flat` from a gradient of its shape; weight decay falls on the first `matrices` elements only."""

    def __init__(self, flat: Tensor, matrices: int, config: TrainConfig) -> None:
        self.master = flat.detach().float()
        self._flat = flat
        self._clip = config.clip
        self._parts = [self.master[:matrices], self.master[matrices:]]
        decays = (config.weight_decay, 0.0)
        groups = [{"params": [part], "weight_decay": decay} for part, decay in zip(self._parts, decays, strict=True)]
        self._adam = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), fused=True)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float) -> float:
        """One step at a learning rate; returns the gradient's norm before clipping. An unsound one moves nothing."""
        norm = float(gradient.norm())
        if not math.isfinite(norm):
            return norm
        gradient.mul_(min(1.0, self._clip / (norm + 1e-6)))
        for part, piece in zip(self._parts, gradient.split([len(part) for part in self._parts]), strict=True):
            part.grad = piece
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._flat.copy_(self.master)
        return norm


def learning_rate(step: int, steps: int, peak: float, warmup: int, floor: float = 0.1) -> float:
    """Linear warmup to `peak`, then a cosine to `floor` of it at the last of `steps` steps."""
    if step < warmup:
        return peak * (step + 1) / warmup
    share = (step - warmup) / max(1, steps - 1 - warmup)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))
