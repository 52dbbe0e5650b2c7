"""Assigns writes to ranks: DCP's save planner, but with replicas distributed by their bytes.

The ranks that save and load together are connected over a process group that the training does not use. DCP's wrapper
runs the collectives: it raises an error of one rank on all ranks, so that no rank is left waiting.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.utils import _DistWrapper
from typing_extensions import override

from learning.checkpoint.state import Box, LocalBox, Shared, State, cut, dtype_of, holdings, shape_of, spread
from schemas.failure import CheckpointError, DamagedError, FlywheelError, RankLostError

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


T = TypeVar("T")
R = TypeVar("R")


class Ranks:
    """All ranks of the job, or only this process without a job.

    Making the object is a collective.
    """

    def __init__(self, timeout: timedelta) -> None:
        together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.group = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=timeout)) if together else None
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1
        self.planned = 0
        """Number of plans on which the ranks have agreed."""
        self._wrapper = _DistWrapper(self.group, together, 0)

    def ask(self, changed: bool, step: int) -> Callable[[], bool]:
        """Starts to find out whether `changed` is true on any rank; a call of the result waits for the answer.

        It takes one small sum, the only communication before a save with a known plan.

        Raises:
            CheckpointError: raised by the result: the ranks are not at the same step.
        """
        group = self.group
        if group is None:
            return lambda: changed
        flags = torch.tensor([int(changed), step, -step])
        asked = self.guarded(lambda: dist.all_reduce(flags, dist.ReduceOp.MAX, group=group, async_op=True))
        assert asked is not None

        def answer() -> bool:
            self.guarded(asked.wait)
            if flags[1] != -flags[2]:
                problem = f"One rank saves step {int(flags[1])} and another step {-int(flags[2])}."
                raise CheckpointError(problem, "All ranks must save the same step.")
            return bool(flags[0])

        return answer

    def plan(
        self, local: Callable[[], SavePlan], share_out: Callable[[list[SavePlan]], tuple[list[SavePlan], Metadata]]
    ) -> tuple[SavePlan, Metadata | None]:
        """Returns this rank's part of a plan that rank 0 makes, and on rank 0 also the metadata."""
        found: list[Metadata] = []

        def on_first(plans: list[SavePlan]) -> list[SavePlan]:
            shares, metadata = share_out(plans)
            found.append(metadata)
            return shares

        self.planned += 1
        mine = self.guarded(lambda: self._wrapper.reduce_scatter("plan", local, on_first))
        return mine, found[0] if found else None

    def broadcast(self, find: Callable[[], T]) -> T:
        """Returns the result of rank 0's `find` on every rank."""
        return self.guarded(lambda: self._wrapper.broadcast("find", find))

    def meet(self) -> None:
        """Waits until all ranks have called this."""
        group = self.group
        if group is not None:
            self.guarded(lambda: dist.barrier(group))

    def all_gather(self, find: Callable[[], T]) -> list[T]:
        """Returns the results of every rank's `find`."""
        return self.guarded(lambda: self._wrapper.all_gather("find", find))

    def all_reduce(self, find: Callable[[], T], join: Callable[[list[T]], R]) -> R:
        """Returns the result of rank 0's `join` on the ranks' results; `join` is not called if a rank failed."""
        return self.guarded(lambda: self._wrapper.all_reduce("write", find, join))

    def close(self) -> None:
        """Releases the process group."""
        if self.group is not None and dist.is_initialized():
            dist.destroy_process_group(self.group)
        # no reference may remain, so that the group's threads end now and not during the interpreter's shutdown
        self.group, self._wrapper = None, _DistWrapper(None, False, 0)

    def guarded(self, call: Callable[[], T]) -> T:
        """Runs a collective, and turns its error into a `CheckpointError` that names the rank."""
        try:
            return call()
        except CheckpointException as failed:
            rank, (error, trace) = min(failed.failures.items())
            where = f"rank {rank}: " if self.size > 1 else ""
            if isinstance(error, FlywheelError):
                kind = DamagedError if isinstance(error, DamagedError) else CheckpointError
                raise kind(f"{where}{error.problem}", error.hint) from error
            what = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{where}{what}", "".join(trace.format()[-1:])) from error
        except RuntimeError as error:
            problem = f"A rank was lost while the ranks were waiting for each other: {error}."
            raise RankLostError(problem, "Start again; the last committed checkpoint is whole.") from error
