"""Sends samples and their computed values to the ranks of a plan, by one all-to-all in each direction.

Between two phases with plans A and B, a sample's outputs go directly from its rank in A to its rank in B
(`learning.planning.balance`; OrchMLLM's rearrangement composition). The backward pass sends gradients in the opposite
direction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from learning.planning.balance import Ints


@dataclass(frozen=True, slots=True)
class Route:
    """Route of one rank's rows from plan A to plan B; rows are in the order of their sample numbers."""

    order: Tensor
    """(this rank's rows under A,) order of sending: by receiver, then by sample."""
    sent: tuple[int, ...]
    """Number of rows for every rank."""
    received: tuple[int, ...]
    """Number of rows from every rank."""
    place: Tensor
    """(this rank's rows under B,) position of each row, in the order of sample numbers, among the received rows."""


AllToAll = Callable[[Tensor, Route], Tensor]
"""Differentiable function from this rank's rows (n, ...) to its rows after a route, such as `all_to_all`."""


def route(before: Ints, after: Ints, sizes: Ints, rank: int, world: int) -> Route:
    """Computes the route of this rank's rows from plan `before` to plan `after`.

    Args:
        before, after: (n,) the rank of every sample.
        sizes: (n,) number of rows of every sample; may be 0. rank, world: this rank, and the number of ranks.
    """
    here = [int(sample) for sample in (before == rank).nonzero()[0]]
    starts, row = {}, 0
    for sample in here:
        starts[sample] = row
        row += int(sizes[sample])
    leaving = sorted(here, key=lambda sample: (int(after[sample]), sample))
    order = [starts[sample] + place for sample in leaving for place in range(int(sizes[sample]))]
    sent = [sum(int(sizes[sample]) for sample in here if after[sample] == other) for other in range(world)]
    coming = [int(sample) for sample in (after == rank).nonzero()[0]]
    received = [sum(int(sizes[sample]) for sample in coming if before[sample] == other) for other in range(world)]
    arrival, row = {}, 0
    for sample in sorted(coming, key=lambda sample: (int(before[sample]), sample)):
        arrival[sample] = row
        row += int(sizes[sample])
    place = [arrival[sample] + offset for sample in coming for offset in range(int(sizes[sample]))]
    return Route(
        torch.tensor(order, dtype=torch.long), tuple(sent), tuple(received), torch.tensor(place, dtype=torch.long)
    )


def all_to_all(rows: Tensor, way: Route, group: dist.ProcessGroup | None = None) -> Tensor:
    """Sends rows (n, ...) to their ranks under the second plan; differentiable; all ranks of the group call it."""
    return exchange(rows.index_select(0, way.order), way.sent, way.received, group).index_select(0, way.place)


def exchange(
    rows: Tensor, sent: Sequence[int], received: Sequence[int], group: dist.ProcessGroup | None = None
) -> Tensor:
    """Exchanges rows between all ranks of the group; differentiable; all ranks of the group call it.

    Args:
        rows: (sum of `sent`, ...), ordered by receivers. sent, received: the number of rows to every rank, and from
            every rank.
        group: the ranks.

    Returns:
        (sum of `received`, ...).
    """
    return _Exchange.apply(rows, sent, received, group)  # type: ignore[return-value]


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: Any) -> Tensor:
        ctx.way = (sent, received, group)
        return _exchanged(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        sent, received, group = ctx.way
        return _exchanged(gradients[0], received, sent, group), None, None, None


def _exchanged(rows: Tensor, sent: Sequence[int], received: Sequence[int], group: Any) -> Tensor:
    arrived = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(arrived, rows.contiguous(), list(received), list(sent), group=group)
    return arrived
