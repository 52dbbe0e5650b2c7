"""Sends samples, and values computed from them, to the ranks of a plan: one all-to-all each way.

Between two phases with plans A and B a sample's outputs go straight from its rank in A to its rank in B
(`learning.planning.balance`; OrchMLLM's rearrangement composition), with no way back first. The backward pass
takes the same way back.
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
    """(rows here under A,) the order in which they are sent: by receiver, then by sample."""
    sent: tuple[int, ...]
    """Number of rows for every rank."""
    received: tuple[int, ...]
    """Number of rows from every rank."""
    place: Tensor
    """(rows here under B,) position of each row, by sample number, among those received."""


AllToAll = Callable[[Tensor, Route], Tensor]
"""Function from this rank's rows (n, ...) to those it holds after a route, differentiable, such as `all_to_all`."""


def route(before: Ints, after: Ints, sizes: Ints, rank: int, world: int) -> Route:
    """Computes the route of this rank's rows from plan `before` to plan `after`.

    Args:
        before, after: (n,) the rank of every sample.
        sizes: (n,) rows of every sample, 0 for a sample that has none.
        rank, world: this rank and how many there are.
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
    """Exchanges rows between all ranks of the group; differentiable; all of them call it.

    Args:
        rows: (sum of `sent`, ...), in the order of their receivers.
        sent, received: the number of rows for, and from, every rank.
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
