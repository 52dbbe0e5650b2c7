"""Runs attention with sequence parallelism: a rank holds a stretch of the tokens, or all tokens of some heads.

One all-to-all converts between the two layouts (DeepSpeed-Ulysses, Jacobs et al., arXiv 2309.14509). Attention needs
whole sequences and works on each head separately; all other layers work on each token separately. So heads are
processed in rounds: during one round's attention, the next round's heads and the previous round's results are being
sent.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from schemas.failure import PlanError

ROUNDS = 4
"""Maximum number of rounds. With four, three quarters of the exchange can overlap with attention, and a round still
fills a GPU."""

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention over whole sequences: from queries, keys and values (tokens, heads, width) to (tokens, heads, width)."""


def attend(query: Tensor, key: Tensor, value: Tensor, group: dist.ProcessGroup, attention: Attention) -> Tensor:
    """Computes attention over sequences whose stretches are on the group's ranks; differentiable.

    All exchanges of heads start before the first wait, and a round's results are sent back before the next round's
    attention. The backward pass uses the opposite order. On a GPU, exchanges run on the stream of the group's NCCL
    communicator.

    Args:
        query: (stretch, heads, width). key, value: as many heads as the query, or fewer. If there are fewer heads than
        ranks, they are repeated, so that each rank has the head for its queries.
        group: the ranks, in the order of their stretches.
        attention: attention for a rank's heads in a round.

    Returns:
        (stretch, heads, width).

    Raises:
        PlanError: the group's degree does not divide the number of heads, or is neither a divisor nor a multiple of the
    number of key heads.
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
    """Reshapes (stretch, heads, width) to (degree, stretch, heads / degree, width), with the heads of each rank."""
    heads = part.shape[1]
    if heads % degree:
        if degree % heads:
            mend = "Take a degree that divides them, or a multiple of them."
            raise PlanError(f"{heads} heads of keys on {degree} ranks.", mend)
        part = part.repeat_interleave(degree // heads, dim=1)
    return part.unflatten(1, (degree, -1)).movedim(1, 0)


def _rounds(query: Tensor, key: Tensor, value: Tensor) -> list[tuple[Tensor, ...]]:
    """Lists the queries of each round with their keys and values: the heads of keys in turn, or a single head in the
    first round."""
    asked, heads = query.shape[2], key.shape[2]
    if heads == 1:
        queries, keys, values = query.tensor_split(min(ROUNDS, asked), dim=2), (key,), (value,)
    else:
        keys, values = (part.tensor_split(min(ROUNDS, heads), dim=2) for part in (key, value))
        queries = query.split([piece.shape[2] * (asked // heads) for piece in keys], dim=2)
    return [tuple(piece for piece in pieces if piece is not None) for pieces in zip_longest(queries, keys, values)]


def _begun(parts: Tensor, group: dist.ProcessGroup) -> Callable[[], Tensor]:
    """Starts an all-to-all, after which part i of rank j is part j of rank i; the returned function waits for it, once.

    Autograd runs backward in reverse order, so work between start and wait runs while the gradient travels.
    """
    exchange = _UlyssesExchange(group)
    arriving = _Begin.apply(parts, exchange)
    return lambda: _End.apply(arriving, exchange)  # type: ignore[return-value]


class _UlyssesExchange:
    """An exchange in progress.

    It holds no tensor of the graph that holds the exchange, since such a cycle would never be freed.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._work: Any = None
        self._parts: Tensor | None = None

    def begin(self, parts: Tensor) -> Tensor:
        """Starts the exchange; returns the tensor that has the other ranks' parts after `wait`."""
        self._parts = parts.contiguous()
        arriving = torch.empty_like(self._parts)
        self._work = dist.all_to_all_single(arriving, self._parts, group=self._group, async_op=True)
        return arriving

    def wait(self) -> None:
        """Waits until the parts have arrived; on a GPU, all later work of the stream waits."""
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
    """The process groups of this rank that plans can use: one aligned range of ranks for each degree, made once.

    Only the ranks of a group create it, from the smallest group to the largest. So each of 1,024 ranks creates at most
    ten groups instead of all 2,047.

    Args:
        degrees: degrees that plans may use; a single rank needs no group.
    """

    def __init__(self, degrees: Sequence[int]) -> None:
        rank = dist.get_rank()
        self._groups: dict[tuple[int, int], Any] = {}
        for degree in sorted(degree for degree in degrees if degree > 1):
            first = rank - rank % degree
            members = list(range(first, first + degree))
            self._groups[first, degree] = dist.new_group(members, use_local_synchronization=True)

    def of(self, first: int, degree: int) -> dist.ProcessGroup:
        """Returns the group of at least 2 ranks, `degree` ranks from `first` on, which includes this rank."""
        return self._groups[first, degree]
