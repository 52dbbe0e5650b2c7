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


def to_heads(tokens: Tensor, group: dist.ProcessGroup) -> Tensor:
    """(stretch, heads, width) of this rank's tokens to (whole sequence, heads / degree, width); differentiable.

    Raises:
        PlanError: the group's degree does not divide the heads.
    """
    degree = dist.get_world_size(group)
    if tokens.shape[1] % degree:
        raise PlanError(f"{tokens.shape[1]} heads on {degree} ranks.", "Take a degree that divides the heads.")
    parts = tokens.unflatten(1, (degree, -1)).movedim(1, 0)
    return _swap(parts, group).flatten(0, 1)


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
