"""Plans a save and allocates its memory once per layout, for all later saves."""

import ctypes
import dataclasses
import mmap
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan

from learning.checkpoint.boxes import Shape
from learning.checkpoint.manifest import Manifest, TensorEntry, folder_of
from learning.checkpoint.planner import box_of, bytes_of
from learning.checkpoint.shard_file import Slot, Written, laid_out, padded
from learning.checkpoint.state import State, memory_of, place_in, view_at


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
    items = sorted(plan.items, key=lambda item: (item.index.fqn, box_of(item).offsets))
    memory = _memory(sum(padded(bytes_of(item)) for item in items), pinned)
    parts, at = [], 0
    for item in items:
        assert item.tensor_data is not None
        numbers = memory[at : at + bytes_of(item)].view(item.tensor_data.properties.dtype)
        parts.append((item.index.fqn, box_of(item), numbers.view(box_of(item).sizes)))
        at += padded(bytes_of(item))
    return laid_out(parts)


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
