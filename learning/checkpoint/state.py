"""Describes a rank's part of each tensor as boxes with views of its memory.

A state is a flat mapping from names to tensors of three kinds. A plain `Tensor` is held whole by every rank that has
its name. A `DTensor` may have any mesh. A `Stretch` is the flat irregular shard of ZeRO-1 and FSDP1. No other module
depends on kinds of tensors.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from learning.checkpoint.boxes import Box, Shape, flat_boxes, flat_index, moved
from schemas.failure import CheckpointError


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
    """Returns the view of a box in memory of any dimensions."""
    return view[tuple(slice(start, start + size) for start, size in zip(box.offsets, box.sizes, strict=True))]


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
