"""Plans a load: one rank reads each block of the files and sends it to the ranks that need it.

Stock DCP lets every rank read every saved shard that touches its own, whole; ranks that share a shard each read it.
Here the group reads every byte once (the redundant reads that ByteCheckpoint removes, arXiv 2407.20143, section 4.3;
the same is proposed for DCP as a cooperative load planner).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from learning.checkpoint.boxes import Box, Shared, flat_boxes, flat_index, moved, overlap, spread
from learning.checkpoint.manifest import Manifest, TensorPiece

Wanted = list[tuple[str, Box]]
"""Boxes of tensors that one rank loads."""


class BlockCopy(NamedTuple):
    """Numbers of a block that one rank wants."""

    rank: int
    wanted: int
    """Index of the wanted box that they belong to."""
    box: Box
    """Position of the numbers in the tensor."""
    source: Box
    """The gapless part of the block that holds them, in the tensor."""
    at: int
    """Element of the block at which `source` begins."""


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Bytes [start, start + size) of a file, with one checksum, and the copies made from them."""

    piece: TensorPiece
    number: int
    moves: list[BlockCopy] = field(repr=False)

    @property
    def start(self) -> int:
        """Byte of the file."""
        return self.piece.start + self.number * self.piece.block

    @property
    def size(self) -> int:
        """Bytes."""
        return min(self.piece.block, self.piece.bytes - self.number * self.piece.block)

    @property
    def sum(self) -> int:
        """CRC-32."""
        return self.piece.sums[self.number]


@dataclass(frozen=True, slots=True)
class LoadingPlan:
    """All blocks in the order of the files, and the rank that reads each."""

    blocks: list[FileBlock]
    readers: list[int]

    @property
    def size(self) -> int:
        """Number of bytes that are read, in all."""
        return sum(block.size for block in self.blocks)


def loading_plan(manifest: Manifest, wanted: Sequence[Wanted]) -> LoadingPlan:
    """Plans the reads of the boxes that the ranks want; all ranks compute the same plan from the same input."""
    by_tensor: dict[str, list[tuple[int, int, Box]]] = defaultdict(list)
    for rank, boxes in enumerate(wanted):
        for index, (name, box) in enumerate(boxes):
            by_tensor[name].append((rank, index, box))
    blocks: list[FileBlock] = []
    for piece in sorted(manifest.pieces, key=lambda piece: (piece.file, piece.start)):
        whole = Box(piece.offsets, piece.sizes)
        wants = [want for want in by_tensor.get(piece.tensor, ()) if piece.bytes and overlap(whole, want[2])]
        if wants:
            itemsize = manifest.tensors[piece.tensor].torch_dtype.itemsize
            blocks += _blocks(piece, itemsize, wants)
    shared = [Shared(block.size, tuple(sorted({move.rank for move in block.moves}))) for block in blocks]
    return LoadingPlan(blocks, spread(shared, len(wanted)))


def _blocks(piece: TensorPiece, itemsize: int, wants: list[tuple[int, int, Box]]) -> list[FileBlock]:
    found = []
    for number in range(len(piece.sums)):
        low = number * piece.block // itemsize
        high = min(low + piece.block // itemsize, piece.bytes // itemsize)
        moves = []
        for part in flat_boxes(piece.sizes, low, high):
            at, source = flat_index(piece.sizes, part.offsets) - low, moved(part, piece.offsets, 1)
            both = ((rank, index, overlap(source, box)) for rank, index, box in wants)
            moves += [BlockCopy(rank, index, box, source, at) for rank, index, box in both if box]
        if moves:
            found.append(FileBlock(piece, number, moves))
    return found
