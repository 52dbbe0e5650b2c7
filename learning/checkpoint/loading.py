"""Plans a load: one rank reads each block of the files and sends it to the ranks that need it.

With stock DCP, every rank reads whole every saved shard that overlaps its own shards, so several ranks read the same
shard. With this plan, the group reads every byte once, as in ByteCheckpoint (arXiv 2407.20143, section 4.3) and as
proposed for DCP as a cooperative load planner.
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
    """Numbers of a block that one rank needs."""

    rank: int
    wanted: int
    """Index of the wanted box to which the numbers belong."""
    box: Box
    """Position of the numbers in the tensor."""
    source: Box
    """Position in the tensor of the gapless part of the block that holds the numbers."""
    at: int
    """Index of the block's element at which `source` begins."""


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Bytes [start, start + size) of a file with one checksum, and the copies made from these bytes."""

    piece: TensorPiece
    number: int
    moves: list[BlockCopy] = field(repr=False)

    @property
    def start(self) -> int:
        """Offset of the first byte in the file."""
        return self.piece.start + self.number * self.piece.block

    @property
    def size(self) -> int:
        """Number of bytes."""
        return min(self.piece.block, self.piece.bytes - self.number * self.piece.block)

    @property
    def sum(self) -> int:
        """CRC-32 of the bytes."""
        return self.piece.sums[self.number]


@dataclass(frozen=True, slots=True)
class LoadingPlan:
    """All blocks in the order of the files, and the rank that reads each block."""

    blocks: list[FileBlock]
    readers: list[int]

    @property
    def size(self) -> int:
        """Number of all bytes that are read."""
        return sum(block.size for block in self.blocks)


def loading_plan(manifest: Manifest, wanted: Sequence[Wanted]) -> LoadingPlan:
    """Plans the reads of the boxes that the ranks need; all ranks compute the same plan from the same input."""
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
