"""A save's plan and its memory: made once for a layout, used by every save that follows."""

import dataclasses
import mmap
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from learning.checkpoint.boxes import Shape
from learning.checkpoint.planner import box_of, bytes_of
from learning.checkpoint.shard_file import Slot, Written, laid_out, padded
from learning.checkpoint.state import State, memory_of, place_in, view_at


@dataclass(frozen=True, slots=True, eq=False)
class SavingPlan:
    """What this rank writes, and the memory that it is copied to first."""

    slots: list[Slot]
    places: list[Shape]
    """Where each slot's box begins in this rank's memory of its tensor."""
    metadata: Metadata | None
    """Of the whole, on rank 0."""

    def stage(self, state: State) -> None:
        """Copies what this rank writes: the only part of a save that the training waits for."""
        on_device = False
        for slot, place in zip(self.slots, self.places, strict=True):
            view = view_at(memory_of(state[slot.tensor]), place, slot.box.sizes)
            on_device |= view.is_cuda
            slot.memory.copy_(view, non_blocking=True)
        if on_device:
            torch.cuda.synchronize()


def saving_plan(items: list[WriteItem], state: State, metadata: Metadata | None) -> SavingPlan:
    """Takes the staging memory for the items, touched, so that no save pays for its pages."""
    total = sum(padded(bytes_of(item)) for item in items)
    memory = _memory(total, any(memory_of(state[item.index.fqn]).is_cuda for item in items))
    parts, at = [], 0
    for item in items:
        assert item.tensor_data is not None
        numbers = memory[at : at + bytes_of(item)].view(item.tensor_data.properties.dtype)
        parts.append((item.index.fqn, box_of(item), numbers.view(box_of(item).sizes)))
        at += padded(bytes_of(item))
    places = [place_in(state[item.index.fqn], box_of(item)) for item in items]
    return SavingPlan(laid_out(parts), places, metadata)


def dcp_metadata(planned: Metadata, written: list[Written], folder: str) -> Metadata:
    """DCP's metadata with the places of all pieces."""
    places = {
        MetadataIndex(piece.tensor, piece.offsets): _StorageInfo(one.file, *archive)
        for one in written
        for piece, archive in zip(one.pieces, one.archives, strict=True)
    }
    meta = StorageMeta(checkpoint_id=folder)
    return dataclasses.replace(planned, storage_data=places, storage_meta=meta, version=CURRENT_DCP_VERSION)


def items_of(plan: SavePlan) -> list[WriteItem]:
    """The items of a rank, ordered by tensor and offset, as they will lie in its file."""
    return sorted(plan.items, key=lambda item: (item.index.fqn, box_of(item).offsets))


def _memory(size: int, pinned: bool) -> Tensor:
    if pinned:
        return torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    if size == 0:
        return torch.empty(0, dtype=torch.uint8)
    pages = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8).zero_()
