"""Plans loads and saves of a layout.

In a load, one rank reads each block of the files and sends it to the ranks that need it. With stock DCP, every rank
reads whole every saved shard that overlaps its own shards, so several ranks read the same shard. With this plan, the
group reads every byte once, as in ByteCheckpoint (arXiv 2407.20143, section 4.3) and as proposed for DCP as a
cooperative load planner.

A save is planned once per layout, and its memory serves all later saves.
"""

import ctypes
import dataclasses
import mmap
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from learning.checkpoint.manifest import Manifest, TensorEntry, TensorPiece, folder_of
from learning.checkpoint.planner import box_of, bytes_of
from learning.checkpoint.shard_file import Slot, Written, laid_out, padded
from learning.checkpoint.state import (
    Box,
    Shape,
    Shared,
    State,
    flat_boxes,
    flat_index,
    memory_of,
    moved,
    overlap,
    place_in,
    spread,
    view_at,
)

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


@dataclass(frozen=True, slots=True, eq=False)
class SavingPlan:
    """Slots that this rank writes, and their staging memory."""

    slots: list[Slot]
    places: list[Shape]
    """Position of each slot's box in this rank's memory of its tensor."""
    metadata: Metadata | None
    """Metadata of the whole checkpoint, on rank 0."""

    def stage(self, state: State) -> None:
        """Copies this rank's part to the staging memory: the only part of a save that the training waits for."""
        on_device = False
        for slot, place in zip(self.slots, self.places, strict=True):
            view = view_at(memory_of(state[slot.tensor]), place, slot.box.sizes)
            on_device |= view.is_cuda
            if view.is_contiguous() and not view.is_cuda:  # bypasses the cache, unlike torch's copy
                ctypes.memmove(slot.memory.data_ptr(), view.data_ptr(), view.nbytes)
            else:
                slot.memory.copy_(view, non_blocking=True)
        if on_device:
            torch.cuda.synchronize()


def saving_plan(plan: SavePlan, state: State, metadata: Metadata | None) -> SavingPlan:
    """Plans a rank's save and touches its staging memory, so that no save has to allocate its pages."""
    on_device = any(memory_of(state[item.index.fqn]).is_cuda for item in plan.items)
    slots = taken(plan, on_device)
    places = [place_in(state[slot.tensor], slot.box) for slot in slots]
    return SavingPlan(slots, places, metadata)


def taken(plan: SavePlan, pinned: bool = False) -> list[Slot]:
    """Allocates slots for a rank's items, ordered by tensor and offset, as in the rank's file."""
    items = _ordered(plan)
    memory = _memory(sum(padded(bytes_of(item)) for item in items), pinned)
    parts, at = [], 0
    for item in items:
        numbers = memory[at : at + bytes_of(item)].view(_dtype(item))
        parts.append((item.index.fqn, box_of(item), numbers.view(box_of(item).sizes)))
        at += padded(bytes_of(item))
    return laid_out(parts)


def unstaged(plan: SavePlan) -> list[Slot]:
    """Makes the slots of `taken` without memory, for numbers that are read while they are written."""
    boxes = [(item, box_of(item)) for item in _ordered(plan)]
    return laid_out(
        (item.index.fqn, box, torch.empty(box.sizes, dtype=_dtype(item), device="meta")) for item, box in boxes
    )


def _ordered(plan: SavePlan) -> list[WriteItem]:
    return sorted(plan.items, key=lambda item: (item.index.fqn, box_of(item).offsets))


def _dtype(item: WriteItem) -> torch.dtype:
    assert item.tensor_data is not None
    return item.tensor_data.properties.dtype


def described(planned: Metadata, written: list[Written], step: int, extra: dict[str, Any]) -> tuple[Manifest, Metadata]:
    """Describes the files of all ranks in a manifest and in DCP's metadata."""
    tensors = {
        name: TensorEntry(dtype=str(entry.properties.dtype).removeprefix("torch."), shape=tuple(entry.size))
        for name, entry in planned.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    manifest = Manifest(
        step=step,
        created=datetime.now(UTC).replace(microsecond=0),
        ranks=len(written),
        extra=extra,
        tensors=tensors,
        files={one.file: one.entry for one in written if one.entry.bytes},
        pieces=tuple(piece for one in written for piece in one.pieces),
    )
    places = {
        MetadataIndex(piece.tensor, piece.offsets): _StorageInfo(one.file, *archive)
        for one in written
        for piece, archive in zip(one.pieces, one.archives, strict=True)
    }
    meta = StorageMeta(checkpoint_id=folder_of(step))
    return manifest, dataclasses.replace(planned, storage_data=places, storage_meta=meta, version=CURRENT_DCP_VERSION)


def _memory(size: int, pinned: bool) -> Tensor:
    if pinned:
        return torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    if size == 0:
        return torch.empty(0, dtype=torch.uint8)
    pages = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8).zero_()
