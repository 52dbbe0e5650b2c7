"""Sequence parallelism inside a group: every rank holds a stretch of the tokens, or all tokens of some heads.

Between the two lies one all-to-all (DeepSpeed-Ulysses, Jacobs et al., arXiv 2309.14509). Everything but attention works
token by token on the stretch; attention needs whole sequences, and works head by head. So the heads go in rounds: while
those of one round attend, those of the next are on their way and those of the last on their way back.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from schemas.failure import PlanError

ROUNDS = 4
"""Maximum number of rounds: all but a quarter of the exchange can then be hidden, and a round still fills a GPU."""

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention over whole sequences: queries, keys and values (tokens, heads, width) to (tokens, heads, width)."""


def attend(query: Tensor, key: Tensor, value: Tensor, group: dist.ProcessGroup, attention: Attention) -> Tensor:
    """Computes attention over sequences of which each of a group's ranks holds a stretch; differentiable.

    All exchanges of heads are begun before the first is waited for, and the way back of a round before the next round's
    attention; backward in the opposite order. On a GPU they run on the stream of the group's NCCL communicator.

    Args:
        query: (stretch, heads, width).
        key, value: as many heads or fewer; fewer than ranks are repeated, so that each has the one its queries ask.
        group: the ranks, in the order of their stretches.
        attention: of a rank's heads of a round.

    Returns:
        (stretch, heads, width).

    Raises:
        PlanError: the group's degree does not divide the heads, or neither divides those of keys nor is a multiple.
    """
    degree = dist.get_world_size(group)
    if query.shape[1] % degree:
        raise PlanError(f"{query.shape[1]} heads on {degree} ranks.", "Take a degree that divides the heads.")
    parts = [_by_rank(part, degree) for part in (query, key, value)]
    coming = [_begun(torch.cat(pieces, dim=2), group) for pieces in _rounds(*parts)]
    sizes = [[piece.shape[2] for piece in pieces] for pieces in _rounds(*parts)]
    going: list[Callable[[], Tensor]] = []
    held: tuple[Tensor, ...] = ()
    for arrived, widths in zip(coming, sizes, strict=True):
        q, *come = arrived().flatten(0, 1).split(widths, dim=1)
        held = tuple(come) or held
        seen = attention(q, *held)
        going.append(_begun(seen.unflatten(0, (degree, -1)), group))
    back = [arrived().movedim(0, 1) for arrived in going]
    return torch.cat(back, dim=2).flatten(1, 2)


def _by_rank(part: Tensor, degree: int) -> Tensor:
    """Reshapes (stretch, heads, width) to (degree, stretch, heads / degree, width): for each rank its heads."""
    heads = part.shape[1]
    if heads % degree:
        if degree % heads:
            mend = "Take a degree that divides them, or a multiple of them."
            raise PlanError(f"{heads} heads of keys on {degree} ranks.", mend)
        part = part.repeat_interleave(degree // heads, dim=1)
    return part.unflatten(1, (degree, -1)).movedim(1, 0)


def _rounds(query: Tensor, key: Tensor, value: Tensor) -> list[tuple[Tensor, ...]]:
    """Queries of each round with the keys and values that they ask: heads of keys in turn, or the only one at first."""
    asked, heads = query.shape[2], key.shape[2]
    if heads == 1:
        queries, keys, values = query.tensor_split(min(ROUNDS, asked), dim=2), (key,), (value,)
    else:
        keys, values = (part.tensor_split(min(ROUNDS, heads), dim=2) for part in (key, value))
        queries = query.split([piece.shape[2] * (asked // heads) for piece in keys], dim=2)
    return [tuple(piece for piece in pieces if piece is not None) for pieces in zip_longest(queries, keys, values)]


def _begun(parts: Tensor, group: dist.ProcessGroup) -> Callable[[], Tensor]:
    """Starts an all-to-all: part i of rank j becomes part j of rank i. The returned function waits for it, once.

    Autograd runs backward in reverse order, so work between start and wait runs while the gradient travels.
    """
    exchange = _UlyssesExchange(group)
    arriving = _Begin.apply(parts, exchange)
    return lambda: _End.apply(arriving, exchange)  # type: ignore[return-value]


class _UlyssesExchange:
    """An exchange in progress. It holds no tensor of the graph that holds it: nothing would free such a cycle."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._work: Any = None
        self._parts: Tensor | None = None

    def begin(self, parts: Tensor) -> Tensor:
        """Starts the exchange; returns the tensor that holds the others' parts after `wait`."""
        self._parts = parts.contiguous()
        arriving = torch.empty_like(self._parts)
        self._work = dist.all_to_all_single(arriving, self._parts, group=self._group, async_op=True)
        return arriving

    def wait(self) -> None:
        """Waits until the parts are there; on a GPU, all later work of the stream waits."""
        self._work.wait()
        self._work = self._parts = None


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, exchange: _UlyssesExchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.begin(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.exchange.wait()
        return gradients[0], None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, arriving: Tensor, exchange: _UlyssesExchange) -> Tensor:
        ctx.exchange = exchange
        exchange.wait()
        return arriving.view_as(arriving)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.exchange.begin(gradients[0]), None


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
        """Returns the group of `degree` ranks from `first` on, of which this rank is one; 2 ranks or more."""
        return self._groups[first, degree]
