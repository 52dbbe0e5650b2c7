"""Describes tensors by their positions in files, so that they are renamed, cut and joined without being read.

Every format is a set of boxes at byte ranges of files: a shard of a rank, a flat stretch of ZeRO, a layer of a stacked
tensor. Conversions move boxes, and only `read` reads numbers.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from learning.checkpoint.state import Box, Shape, cut, inside, moved, overlap
from schemas.failure import CheckpointError, DamagedError

BUFFER = 32 << 20
"""Approximate maximum bytes of a slice that a conversion holds in memory."""
RESTORE = "Restore the file, or convert another step."


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, and the position of its numbers in a file."""

    box: Box
    file: Path
    start: int
    """Offset of the box's first number in the file, in bytes."""
    strides: Shape
    """Distance in the file between neighbours along each dimension, in numbers."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in files."""

    dtype: torch.dtype
    shape: Shape
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """Counts the bytes of the numbers."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, box: Box) -> Tensor:
        """Reads a box into memory, contiguous; raises DamagedError if a file is missing or cut."""
        target = torch.empty(box.sizes, dtype=self.dtype)
        for piece in self.pieces:
            if found := overlap(piece.box, box):
                part = _narrowed(piece, found, self.dtype.itemsize)
                inside(target, moved(found, box.offsets)).copy_(_read_strided(part, self.dtype))
        return target

    @property
    def box(self) -> Box:
        """Returns the box of the whole tensor."""
        return Box((0,) * len(self.shape), self.shape)


def slices(box: Box, dtype: torch.dtype) -> Iterator[Box]:
    """Cuts a box into boxes of at most about BUFFER bytes, in row-major order."""
    most = BUFFER // dtype.itemsize
    for part in cut(box, most):
        if part.numel > most and part != box:  # a row that is too long
            yield from slices(part, dtype)
        else:
            yield part


def contiguous(dtype: torch.dtype, shape: Shape, file: Path, start: int) -> StoredTensor:
    """Describes a tensor that is stored whole, row-major."""
    whole = StoredTensor(dtype, tuple(shape), ())
    piece = Piece(whole.box, file, start, row_major(whole.shape))
    return replace(whole, pieces=(piece,) if whole.nbytes else ())


def row_major(shape: Shape) -> Shape:
    """Returns the strides of a contiguous tensor, in numbers."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def rows(tensor: StoredTensor, low: int, high: int) -> StoredTensor:
    """Takes the rows [low, high) of a tensor."""
    within = Box((low, *(0 for _ in tensor.shape[1:])), (high - low, *tensor.shape[1:]))
    found = [(piece, overlap(piece.box, within)) for piece in tensor.pieces]
    pieces = tuple(_narrowed(piece, box, tensor.dtype.itemsize) for piece, box in found if box)
    return StoredTensor(tensor.dtype, within.sizes, tuple(_moved(piece, -low) for piece in pieces))


def joined(tensors: Sequence[StoredTensor]) -> StoredTensor:
    """Joins tensors along their first dimension; raises ValueError if types or other dimensions differ."""
    first, pieces, at = tensors[0], [], 0
    for tensor in tensors:
        if (tensor.dtype, tensor.shape[1:]) != (first.dtype, first.shape[1:]):
            raise ValueError(f"{tensor.dtype} {tensor.shape} does not continue {first.dtype} {first.shape}")
        pieces += [_moved(piece, at) for piece in tensor.pieces]
        at += tensor.shape[0]
    return StoredTensor(first.dtype, (at, *first.shape[1:]), tuple(pieces))


def stacked(tensors: Sequence[StoredTensor]) -> StoredTensor:
    """Stacks tensors along a new first dimension; raises ValueError if types or shapes differ."""
    grown = []
    for tensor in tensors:
        pieces = (
            replace(piece, box=Box((0, *piece.box.offsets), (1, *piece.box.sizes)), strides=(0, *piece.strides))
            for piece in tensor.pieces
        )
        grown.append(StoredTensor(tensor.dtype, (1, *tensor.shape), tuple(pieces)))
    return joined(grown)


def layer_of(tensor: StoredTensor, index: int) -> StoredTensor:
    """Takes one tensor of a stack."""
    row = rows(tensor, index, index + 1)
    pieces = (
        replace(piece, box=Box(piece.box.offsets[1:], piece.box.sizes[1:]), strides=piece.strides[1:])
        for piece in row.pieces
    )
    return StoredTensor(tensor.dtype, tensor.shape[1:], tuple(pieces))


def check_whole(name: str, tensor: StoredTensor, where: Path) -> None:
    """Checks that the pieces cover a tensor exactly once.

    Raises:
        DamagedError: a part is missing, stored twice, or outside the tensor.
    """
    before: list[Box] = []
    count = 0
    for box in sorted(piece.box for piece in tensor.pieces):
        ends = zip(box.offsets, box.sizes, tensor.shape, strict=True)
        if any(offset < 0 or offset + size > length for offset, size, length in ends):
            raise DamagedError(f"{where}: a part of `{name}` at {box.offsets} is outside {tensor.shape}.", RESTORE)
        before = [one for one in before if not box.offsets or one.offsets[0] + one.sizes[0] > box.offsets[0]]
        if any(overlap(one, box) for one in before):
            raise DamagedError(f"{where}: a part of `{name}` at {box.offsets} is stored twice.", RESTORE)
        before.append(box)
        count += box.numel
    if count != math.prod(tensor.shape):
        problem = f"{where} has {count} of the {math.prod(tensor.shape)} numbers of `{name}`; a part is missing."
        raise DamagedError(problem, RESTORE)


def equal(one: StoredTensor, other: StoredTensor) -> bool:
    """Compares the numbers of two tensors bit by bit, slice by slice."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    pairs = ((one.read(box), other.read(box)) for box in slices(one.box, one.dtype))
    return all(torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)) for a, b in pairs)


def _moved(piece: Piece, by: int) -> Piece:
    offsets = (piece.box.offsets[0] + by, *piece.box.offsets[1:])
    return replace(piece, box=Box(offsets, piece.box.sizes))


def _narrowed(piece: Piece, box: Box, itemsize: int) -> Piece:
    steps = zip(box.offsets, piece.box.offsets, piece.strides, strict=True)
    ahead = sum((to - origin) * stride for to, origin, stride in steps)
    return Piece(box, piece.file, piece.start + ahead * itemsize, piece.strides)


def _read_strided(piece: Piece, dtype: torch.dtype) -> Tensor:
    """Reads the range of a file that spans a piece, and returns its view of the piece's sizes."""
    sizes = piece.box.sizes
    span = sum((size - 1) * stride for size, stride in zip(sizes, piece.strides, strict=True)) + 1
    memory = torch.empty(span, dtype=dtype)
    _fill(piece.file, piece.start, memory.view(torch.uint8).numpy().data)
    return memory.as_strided(sizes, piece.strides)


def _fill(path: Path, start: int, buffer: memoryview) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise DamagedError(f"{path} is missing.", RESTORE) from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.", "Check its rights.") from error
    try:
        done = 0
        while done < len(buffer):
            got = os.preadv(file, [buffer[done:]], start + done)
            if got == 0:
                raise DamagedError(f"{path} ends too early.", RESTORE)
            done += got
    finally:
        os.close(file)
