"""Assigns writes to ranks: DCP's save planner, but with replicas distributed by their bytes."""

import dataclasses
import math
from collections import defaultdict

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from typing_extensions import override

from learning.checkpoint.boxes import Box, Shared, cut, spread
from learning.checkpoint.state import LocalBox, State, dtype_of, holdings, shape_of
from schemas.failure import CheckpointError

SLICES = 8
"""A replica is cut into slices of at most 1 / (SLICES * ranks) of all bytes, so that ranks can share the writing."""


class BalancedSavePlanner(DefaultSavePlanner):
    """Plans that the rank with the least to write writes replicated data, once.

    Stock DCP weighs each shard by the size of its whole tensor and never cuts one. This planner assigns slices by their
    actual bytes, the largest first, to the least loaded holder (ByteCheckpoint, arXiv 2407.20143, section 4.2).
    """

    @override
    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        holders: dict[tuple[str, Box], list[int]] = defaultdict(list)
        first: dict[tuple[str, Box], WriteItem] = {}
        for rank, plan in enumerate(all_plans):
            for item in plan.items:
                key = (item.index.fqn, box_of(item))
                holders[key].append(rank)
                first.setdefault(key, item)
        most = sum(bytes_of(item) for item in first.values()) // (SLICES * len(all_plans))
        slices: list[WriteItem] = []
        shared: list[Shared] = []
        for key, item in first.items():
            for part in _slices(item, most) if len(holders[key]) > 1 else [item]:
                slices.append(part)
                shared.append(Shared(bytes_of(part), tuple(holders[key])))
        items: list[list[WriteItem]] = [[] for _ in all_plans]
        for part, owner in zip(slices, spread(shared, len(all_plans)), strict=True):
            items[owner].append(part)
        return [dataclasses.replace(plan, items=mine) for plan, mine in zip(all_plans, items, strict=True)]


def local_plan(state: State) -> SavePlan:
    """Lists all items that this rank could write.

    Raises:
        CheckpointError: the state has a value that is no tensor, or is a sum that was not reduced.
    """
    items = []
    for name, part in state.items():
        held = holdings(name, part)
        size, dtype = torch.Size(shape_of(part)), dtype_of(part)
        items += [_item(one, size, dtype) for one in held]
    return SavePlan(items, planner_data={name: (name,) for name in state})


def global_plan(plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
    """Computes each rank's writes, and DCP's metadata of the whole checkpoint.

    Raises:
        CheckpointError: the ranks' shards of a tensor overlap or do not cover it.
    """
    _check_agreement(plans)
    try:
        shared_out, metadata = BalancedSavePlanner().create_global_plan(plans)
    except ValueError as error:
        problem = f"The ranks' shards do not make whole tensors: {error}."
        raise CheckpointError(problem, "Check their offsets.") from error
    for name, tensor in metadata.state_dict_metadata.items():
        assert isinstance(tensor, TensorStorageMetadata)
        held = sum(math.prod(chunk.sizes) for chunk in tensor.chunks)
        if held != math.prod(tensor.size):
            problem = f"The ranks hold {held} of the {math.prod(tensor.size)} elements of `{name}`."
            raise CheckpointError(problem, "Give every rank's shard to the save.")
    return shared_out, metadata


def box_of(item: WriteItem) -> Box:
    """Returns the box that an item writes."""
    assert item.tensor_data is not None
    return Box(tuple(item.tensor_data.chunk.offsets), tuple(item.tensor_data.chunk.sizes))


def bytes_of(item: WriteItem) -> int:
    """Counts the bytes that an item writes."""
    assert item.tensor_data is not None
    return box_of(item).numel * item.tensor_data.properties.dtype.itemsize


def _item(held: LocalBox, size: torch.Size, dtype: torch.dtype) -> WriteItem:
    data = TensorWriteData(_chunk(held.box), TensorProperties(dtype=dtype), size)
    return WriteItem(MetadataIndex(held.name, held.box.offsets), WriteItemType.SHARD, tensor_data=data)


def _slices(item: WriteItem, most: int) -> list[WriteItem]:
    """Cuts a replicated item into slices of at most about `most` bytes."""
    assert item.tensor_data is not None
    data = item.tensor_data
    return [
        dataclasses.replace(
            item,
            index=MetadataIndex(item.index.fqn, box.offsets),
            tensor_data=dataclasses.replace(data, chunk=_chunk(box)),
        )
        for box in cut(box_of(item), max(1, most // data.properties.dtype.itemsize))
    ]


def _chunk(box: Box) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(box.offsets), torch.Size(box.sizes))


def _check_agreement(plans: list[SavePlan]) -> None:
    seen: dict[str, tuple[torch.Size, torch.dtype]] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            assert item.tensor_data is not None
            mine = (item.tensor_data.size, item.tensor_data.properties.dtype)
            theirs = seen.setdefault(item.index.fqn, mine)
            if mine != theirs:
                problem = f"`{item.index.fqn}` is {_words(mine)} on rank {rank} and {_words(theirs)} elsewhere."
                raise CheckpointError(problem, "Every rank must name the same tensor.")


def _words(kind: tuple[torch.Size, torch.dtype]) -> str:
    return f"{str(kind[1]).removeprefix('torch.')} {tuple(kind[0])}"
