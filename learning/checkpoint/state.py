"""Describes a rank's part of each tensor as boxes with views of its memory.

Boxes describe saved pieces, ranks' shards and reads, without tensors. A box is a rectangle of a tensor: offsets and
sizes, one per dimension, all >= 0. Flat ranges are row-major.

A state is a flat mapping from names to tensors of three kinds. A plain `Tensor` is held whole by every rank that has
its name. A `DTensor` may have any mesh. A `Stretch` is the flat irregular shard of ZeRO-1 and FSDP1. No other module
depends on kinds of tensors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from schemas.failure import CheckpointError

Shape = tuple[int, ...]
_PASSES = 20


class Box(NamedTuple):
    """Position of a rectangle in its tensor, in elements."""

    offsets: Shape
    sizes: Shape

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.sizes)


class Shared(NamedTuple):
    """A unit of work that any of several ranks can do."""

    weight: int
    holders: tuple[int, ...]


def flat_boxes(shape: Shape, start: int, end: int) -> list[Box]:
    """Splits the flat range [start, end) of a tensor into at most 2 dim - 1 boxes, in storage order.

    A flat piece of a tensor becomes rectangles without communication (decomposition of irregular shards,
    ByteCheckpoint, arXiv 2407.20143, section 4).
    """
    if start >= end:
        return []
    if len(shape) <= 1:
        return [Box((start,), (end - start,)) if shape else Box((), ())]
    inner = math.prod(shape[1:])
    first, last = start // inner, (end - 1) // inner
    if first == last:
        return _within(first, flat_boxes(shape[1:], start - first * inner, end - first * inner))
    head = _within(first, flat_boxes(shape[1:], start - first * inner, inner)) if start % inner else []
    tail = _within(last, flat_boxes(shape[1:], 0, end - last * inner)) if end % inner else []
    low, high = first + bool(head), last + (not tail)
    zeros = (0,) * (len(shape) - 1)
    whole = [Box((low, *zeros), (high - low, *shape[1:]))] if high > low else []
    return head + whole + tail


def flat_index(shape: Shape, offsets: Sequence[int]) -> int:
    """Computes the row-major position of an element."""
    index = 0
    for size, offset in zip(shape, offsets, strict=True):
        index = index * size + offset
    return index


def overlap(one: Box, other: Box) -> Box | None:
    """Computes the intersection of two boxes of one tensor; None if it is empty."""
    offsets, sizes = [], []
    for a, n, b, m in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True):
        low, high = max(a, b), min(a + n, b + m)
        if low >= high:
            return None
        offsets.append(low)
        sizes.append(high - low)
    return Box(tuple(offsets), tuple(sizes))


def moved(box: Box, origin: Sequence[int], sign: int = -1) -> Box:
    """Converts a box to offsets from `origin` (sign -1), or back (sign 1)."""
    return Box(tuple(at + sign * zero for at, zero in zip(box.offsets, origin, strict=True)), box.sizes)


def cut(box: Box, most: int) -> list[Box]:
    """Cuts a box into slices of about `most` elements, along its first divisible dimension."""
    parts = -(-box.numel // max(1, most))
    dim = next((dim for dim, size in enumerate(box.sizes) if size > 1), None)
    if parts <= 1 or dim is None:
        return [box]
    size = box.sizes[dim]
    edges = sorted({size * part // min(parts, size) for part in range(min(parts, size) + 1)})
    return [
        Box(
            (*box.offsets[:dim], box.offsets[dim] + low, *box.offsets[dim + 1 :]),
            (*box.sizes[:dim], high - low, *box.sizes[dim + 1 :]),
        )
        for low, high in pairwise(edges)
    ]


def spread(items: Iterable[Shared], ranks: int) -> list[int]:
    """Assigns each item to one of its holders: the largest item first, to the least loaded rank (Graham's rule).

    Items with a single holder are assigned first. The greedy rule alone is bad if items share only some of their
    holders. So items then move to a holder whose new load is below the old holder's load, until no such move is left or
    a limit of passes is reached. Ties go to the lowest rank, so every rank computes the same result.
    """
    listed = list(items)
    loads = [0] * ranks
    chosen = [-1] * len(listed)
    order = sorted(range(len(listed)), key=lambda at: (len(listed[at].holders) > 1, -listed[at].weight, at))
    for at in order:
        owner = min(listed[at].holders, key=lambda rank: (loads[rank], rank))
        chosen[at] = owner
        loads[owner] += listed[at].weight
    for _ in range(_PASSES):
        moved_any = False
        for at in order:
            weight, owner = listed[at].weight, chosen[at]
            better = min(listed[at].holders, key=lambda rank: (loads[rank], rank))
            if loads[better] + weight < loads[owner]:
                chosen[at] = better
                loads[owner] -= weight
                loads[better] += weight
                moved_any = True
        if not moved_any:
            break
    return chosen


def _within(index: int, inner: list[Box]) -> list[Box]:
    return [Box((index, *box.offsets), (1, *box.sizes)) for box in inner]


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """The elements [start, start + len(flat)) of a tensor, row-major; the other ranks hold the rest.

    Raises:
        CheckpointError: `flat` is no contiguous tensor of one dimension, or exceeds `shape`.
    """

    flat: Tensor
    """(length,), contiguous; may be empty."""
    shape: Shape
    """Shape of the whole tensor."""
    start: int

    def __post_init__(self) -> None:
        if self.flat.ndim != 1 or not self.flat.is_contiguous():
            raise CheckpointError(f"A stretch is {tuple(self.flat.shape)}.", "Give one contiguous dimension.")
        if not 0 <= self.start <= self.end <= math.prod(self.shape):
            problem = f"The stretch [{self.start}, {self.end}) is not inside {self.shape}."
            raise CheckpointError(problem, "Count from the start of the tensor itself, not of a buffer of many.")

    @property
    def end(self) -> int:
        """Returns the index one past the last element."""
        return self.start + self.flat.numel()


Part = Tensor | DTensor | Stretch
State = Mapping[str, Part]


@dataclass(frozen=True, slots=True, eq=False)
class LocalBox:
    """A box of a tensor that this rank holds, and its memory, shaped like the box."""

    name: str
    box: Box
    view: Tensor

    def inner(self, box: Box) -> Tensor:
        """Returns the view of a box inside this one."""
        return inside(self.view, moved(box, self.box.offsets))


def stretches(flat: Tensor, start: int, layout: Sequence[tuple[str, Shape]]) -> dict[str, Stretch]:
    """Splits a rank's stretch of a concatenated buffer into one stretch for each tensor in it.

    Args:
        flat: (length,), the buffer's elements [start, start + length).
        start: index of the stretch's first element in the buffer.
        layout: name and shape of every tensor, in the buffer's order.
    """
    found: dict[str, Stretch] = {}
    at, end = 0, start + flat.numel()
    for name, shape in layout:
        after = at + math.prod(shape)
        low, high = max(at, start), min(after, end)
        if low < high:
            found[name] = Stretch(flat[low - start : high - start], tuple(shape), low - at)
        at = after
    return found


def shape_of(part: Part) -> Shape:
    """Returns the shape of the whole tensor."""
    return part.shape if isinstance(part, Stretch) else tuple(part.shape)


def dtype_of(part: Part) -> torch.dtype:
    """Returns the tensor's number type."""
    return part.flat.dtype if isinstance(part, Stretch) else part.dtype


def holdings(name: str, part: Part) -> list[LocalBox]:
    """Lists the boxes of a tensor that this rank holds; none for an empty shard, one empty box for an empty tensor.

    Raises:
        CheckpointError: the part is no tensor, or is a sum that was not reduced yet.
    """
    if isinstance(part, Stretch):
        nothing = [Box((0,) * len(part.shape), part.shape)] if 0 in part.shape else []
        boxes = nothing or flat_boxes(part.shape, part.start, part.end)
        memory = memory_of(part)
        return [LocalBox(name, box, view_at(memory, place_in(part, box), box.sizes)) for box in boxes]
    if isinstance(part, DTensor):
        return _of_dtensor(name, part)
    if not isinstance(part, Tensor):
        problem = f"`{name}` of the state is a {type(part).__name__}."
        raise CheckpointError(problem, "Give a Tensor, DTensor or Stretch; small values go into `extra`.")
    return [LocalBox(name, Box((0,) * part.ndim, tuple(part.shape)), part.detach())]


def memory_of(part: Part) -> Tensor:
    """Returns this rank's numbers of a tensor in their own memory: the flat tensor of a stretch, or the local shard of
    a mesh."""
    if isinstance(part, Stretch):
        return part.flat.detach()
    return part.to_local().detach() if isinstance(part, DTensor) else part.detach()


def place_in(part: Part, box: Box) -> Shape:
    """Finds where a box that this rank holds begins in `memory_of(part)`: one offset per dimension of that memory."""
    if isinstance(part, Stretch):
        return (flat_index(part.shape, box.offsets) - part.start,)
    if isinstance(part, DTensor):
        _, origin = compute_local_shape_and_global_offset(part.shape, part.device_mesh, part.placements)
        return moved(box, origin).offsets
    return box.offsets


def view_at(memory: Tensor, place: Shape, sizes: Shape) -> Tensor:
    """Returns the view of a box; in flat memory, the box must be without gaps."""
    if memory.ndim == 1 and len(place) == 1:
        return memory[place[0] : place[0] + math.prod(sizes)].view(sizes)
    return inside(memory, Box(place, sizes))


def inside(view: Tensor, box: Box) -> Tensor:
    """Returns the view of a box in memory of any dimensions; raises RuntimeError if the box exceeds it."""
    for dim, (offset, size) in enumerate(zip(box.offsets, box.sizes, strict=True)):
        view = view.narrow(dim, offset, size)  # a slice would silently be cut
    return view


def signature(state: State) -> tuple[object, ...]:
    """Describes a state cheaply: equal for two states of this rank exactly if their save plans are equal."""
    return tuple((name, *_kind(part)) for name, part in state.items())


def _kind(part: Part) -> tuple[object, ...]:
    if isinstance(part, Stretch):
        return (part.shape, part.start, part.flat.numel(), part.flat.dtype, part.flat.device)
    if isinstance(part, DTensor):
        return (part.shape, part.placements, part.device_mesh, part.dtype)
    return (part.shape, part.dtype, part.device) if isinstance(part, Tensor) else (type(part),)


def _of_dtensor(name: str, part: DTensor) -> list[LocalBox]:
    if any(placement.is_partial() for placement in part.placements):
        raise CheckpointError(f"`{name}` is a partial sum over its mesh.", "Reduce it before it is saved.")
    if part.device_mesh.get_coordinate() is None:
        return []
    sizes, offsets = compute_local_shape_and_global_offset(part.shape, part.device_mesh, part.placements)
    if math.prod(sizes) == 0 and part.numel() > 0:
        return []
    return [LocalBox(name, Box(tuple(offsets), tuple(sizes)), memory_of(part))]
