"""Accesses a sharded weight in part and whole, and computes norm and optimiser step only on shards.

An optimiser's step needs no communication, and a gradient's norm needs one number from each rank. With `DTensor`s, each
operation and shape would be planned first, which takes at least a second of a training's first step.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from torch.optim.adamw import adamw


def local(weight: Tensor) -> Tensor:
    """Returns this rank's shard, or the weight itself if it is not sharded."""
    return weight.to_local() if isinstance(weight, DTensor) else weight


def whole(weight: Tensor) -> Tensor:
    """Gathers the weight from all ranks; all call it."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


@torch.no_grad()
def clip(weights: Sequence[Tensor], most: float) -> Tensor:
    """Computes the norm of all gradients over all ranks, and clips them to `most`; all ranks call it.

    Returns:
        () the norm before clipping, in double precision, on the gradients' device, so that the host need not wait.
    """
    alike: dict[Any, list[Tensor]] = {}
    for gradient in (weight.grad for weight in weights if weight.grad is not None):
        sharing = (gradient.device_mesh, gradient.placements) if isinstance(gradient, DTensor) else None
        alike.setdefault(sharing, []).append(local(gradient))
    squares = []
    for sharing, gradients in alike.items():
        part = get_total_norm(gradients).square()
        if sharing is not None:
            mesh, placements = sharing
            for axis in (axis for axis, placement in enumerate(placements) if placement.is_shard()):
                dist.all_reduce(part, group=mesh.get_group(axis))
        squares.append(part.double())
    norm = torch.stack(squares).sum().sqrt() if squares else torch.zeros((), dtype=torch.float64)
    factor = (most / norm).clamp(max=1.0)
    for gradients in alike.values():
        torch._foreach_mul_(gradients, factor.to(gradients[0].dtype))  # type: ignore[attr-defined]
    return norm


class ShardedAdamW(torch.optim.AdamW):
    """Fused AdamW on each rank's shards."""

    @torch.no_grad()
    def step(self, closure: Any = None, norm: Tensor | None = None) -> None:  # type: ignore[override]
        """Makes one step of every weight that has a gradient; with a norm that is not finite, no weight changes."""
        from learning.engines.optimizer import moments_of

        assert closure is None
        unsound = None if norm is None else (~norm.isfinite()).to(torch.float32)
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            states = [moments_of(self, weight) for weight in weights]
            if not weights:
                continue
            beta1, beta2 = group["betas"]
            adamw(
                [local(weight) for weight in weights],
                [local(weight.grad) for weight in weights],
                [local(state["exp_avg"]) for state in states],
                [local(state["exp_avg_sq"]) for state in states],
                [],
                [state["step"] for state in states],
                fused=True,
                found_inf=unsound,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            # the fused kernel leaves the versions, by which copies of weights are known to be old
            torch.autograd.graph.increment_version([local(weight) for weight in weights])
