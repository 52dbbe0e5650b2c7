"""Sequence parallelism inside a group: every rank holds a stretch of the tokens, or all tokens of some heads.

Between the two lies one all-to-all (DeepSpeed-Ulysses, Jacobs et al., arXiv 2309.14509). Everything but attention works
token by token on the stretch; attention needs whole sequences, and works head by head.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from schemas.failure import PlanError


def to_heads(parts: Sequence[Tensor], group: dist.ProcessGroup) -> list[Tensor]:
    """Queries, keys and values of this rank's tokens, (stretch, heads, width) each, to (whole sequence, heads / degree,
    width), in one exchange; differentiable.

    Fewer heads of keys than ranks are repeated, so that each rank has the one that its queries ask.

    Raises:
        PlanError: the group's degree neither divides the heads of one nor is a multiple of them.
    """
    degree = dist.get_world_size(group)
    held = [_for_each(part, degree) for part in parts]
    sizes = [part.shape[1] // degree for part in held]
    joint = torch.cat([part.unflatten(1, (degree, -1)) for part in held], dim=2)
    return list(_swap(joint.movedim(1, 0), group).flatten(0, 1).split(sizes, dim=1))


def _for_each(part: Tensor, degree: int) -> Tensor:
    heads = part.shape[1]
    if heads % degree == 0:
        return part
    if degree % heads:
        raise PlanError(f"{heads} heads on {degree} ranks.", "Take a degree that divides the heads, or a multiple.")
    return part.repeat_interleave(degree // heads, dim=1)


def to_tokens(heads: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The way back: (whole sequence, heads / degree, width) to (stretch, heads, width)."""
    degree = dist.get_world_size(group)
    parts = heads.unflatten(0, (degree, -1))
    return _swap(parts, group).movedim(0, 1).flatten(1, 2)


def _swap(parts: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Part i of rank j becomes part j of rank i."""
    return _Swap.apply(parts, group)  # type: ignore[return-value]


class _Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _all_to_all(parts, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _all_to_all(gradients[0], ctx.group), None


def _all_to_all(parts: Tensor, group: Any) -> Tensor:
    arrived = torch.empty_like(parts, memory_format=torch.contiguous_format)
    dist.all_to_all_single(arrived, parts.contiguous(), group=group)
    return arrived


class GroupPool:
    """The process groups of this rank that any plan can name: one aligned stretch of ranks for each degree, made once.

    Only a group's own ranks make it, the smaller before the larger, so a rank among 1,024 makes ten at the most and not
    all 2,047 there are.

    Args:
        degrees: those that plans may use; one rank alone needs no group.
    """

    def __init__(self, degrees: Sequence[int]) -> None:
        rank = dist.get_rank()
        self._groups: dict[tuple[int, int], Any] = {}
        for degree in sorted(degree for degree in degrees if degree > 1):
            first = rank - rank % degree
            members = list(range(first, first + degree))
            self._groups[first, degree] = dist.new_group(members, use_local_synchronization=True)

    def of(self, first: int, degree: int) -> dist.ProcessGroup:
        """The group of `degree` ranks from `first` on, of which this rank is one; 2 ranks or more."""
        return self._groups[first, degree]
