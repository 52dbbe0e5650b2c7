"""Executes a load's plan: reads and checks blocks, sends them to other ranks, and copies numbers into tensors."""

import math
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

from learning.checkpoint.loading import BlockCopy, FileBlock, LoadingPlan
from learning.checkpoint.shard_file import ALIGN, padded
from learning.checkpoint.state import Box, LocalBox, inside, moved
from schemas.failure import DamagedError
from storage.objects import ObjectStore

RUN = 32 << 20
"""Approximate maximum bytes of consecutive blocks that are read together."""
BATCH = 256 << 20
"""Bytes requested from the store at once."""
ROUND = 64 << 20
"""Bytes sent in one exchange between ranks."""

Numbers = dict[int, Tensor]
"""Content of each block, as one dimension of numbers of the tensor's type."""


def read_blocks(
    store: ObjectStore, folder: str, plan: LoadingPlan, rank: int, dtypes: dict[str, torch.dtype]
) -> Numbers:
    """Reads and checks the blocks that the plan assigns to this rank.

    Raises:
        CheckpointError: a file is missing or short, or a block differs from its checksum.
    """
    numbers: Numbers = {}
    mine = [at for at, reader in enumerate(plan.readers) if reader == rank]
    for file, chosen in groupby(mine, key=lambda at: plan.blocks[at].piece.file):
        for batch in _batches(_runs(chosen, plan.blocks, store.gap), plan.blocks):
            memory = [_aligned(*_span(run, plan.blocks)) for run in batch]
            ranges = [(plan.blocks[run[0]].start, one.numpy().data) for run, one in zip(batch, memory, strict=True)]
            store.read(f"{folder}/{file}", ranges)
            for run, one in zip(batch, memory, strict=True):
                for at in run:
                    numbers[at] = _checked(store, folder, plan.blocks[at], one, plan.blocks[run[0]].start, dtypes)
    return numbers


def place_own(plan: LoadingPlan, rank: int, numbers: Numbers, holdings: list[LocalBox]) -> None:
    """Copies the blocks that this rank read for itself into its memory."""
    for at, content in numbers.items():
        for move in plan.blocks[at].moves:
            if move.rank == rank:
                holdings[move.wanted].inner(move.box).copy_(_inside(content, move))


def hand_on(plan: LoadingPlan, rank: int, numbers: Numbers, holdings: list[LocalBox], group: dist.ProcessGroup) -> None:
    """Sends blocks to the ranks that need them, and copies received ones into memory. Every rank calls it."""
    ranks = dist.get_world_size(group)
    for moves in _rounds(plan):
        lengths = [[0] * ranks for _ in range(ranks)]
        for at, move in moves:
            lengths[plan.readers[at]][move.rank] += _room(plan.blocks[at], move)
        sent = torch.empty(sum(lengths[rank]), dtype=torch.uint8)
        come = torch.empty(sum(row[rank] for row in lengths), dtype=torch.uint8)
        out = [move for move in moves if plan.readers[move[0]] == rank]
        place = 0
        for at, move in sorted(out, key=lambda one: one[1].rank):
            _shaped(sent, place, numbers[at].dtype, move.box).copy_(_inside(numbers[at], move))
            place += _room(plan.blocks[at], move)
        dist.all_to_all_single(come, sent, [row[rank] for row in lengths], lengths[rank], group=group)
        back = [move for move in moves if move[1].rank == rank]
        place = 0
        for at, move in sorted(back, key=lambda one: plan.readers[one[0]]):
            target = holdings[move.wanted].inner(move.box)
            target.copy_(_shaped(come, place, target.dtype, move.box))
            place += _room(plan.blocks[at], move)


def _rounds(plan: LoadingPlan) -> Iterator[list[tuple[int, BlockCopy]]]:
    """Splits the moves into rounds of about ROUND bytes; the same on every rank."""
    moves, size = [], 0
    for at, (block, reader) in enumerate(zip(plan.blocks, plan.readers, strict=True)):
        for move in block.moves:
            if move.rank != reader:
                moves.append((at, move))
                size += _room(block, move)
        if size >= ROUND:
            yield moves
            moves, size = [], 0
    if moves:
        yield moves


def _room(block: FileBlock, move: BlockCopy) -> int:
    """Computes the size of a move in an exchange, in bytes, aligned so that the numbers can be viewed in place."""
    itemsize = block.piece.bytes // math.prod(block.piece.sizes)
    return padded(move.box.numel * itemsize)


def _inside(content: Tensor, move: BlockCopy) -> Tensor:
    """Returns the numbers of a move in its block."""
    view = content[move.at : move.at + move.source.numel].view(move.source.sizes)
    return inside(view, moved(move.box, move.source.offsets))


def _shaped(memory: Tensor, place: int, dtype: torch.dtype, box: Box) -> Tensor:
    return memory[place : place + box.numel * dtype.itemsize].view(dtype).view(box.sizes)


def _checked(
    store: ObjectStore, folder: str, block: FileBlock, memory: Tensor, origin: int, dtypes: dict[str, torch.dtype]
) -> Tensor:
    low = block.start - origin
    part = memory[low : low + block.size]
    if zlib.crc32(part.numpy().data) != block.sum:
        where = f"{store.path(folder)}/{block.piece.file}"
        problem = f"{where}: `{block.piece.tensor}` differs from the saved data (bytes {block.start} and on)."
        raise DamagedError(problem, "Restore the file, or load another step.")
    return part.view(dtypes[block.piece.tensor])


def _runs(chosen: Iterable[int], blocks: list[FileBlock], gap: int) -> list[list[int]]:
    """Groups the blocks of a file that are read together."""
    runs: list[list[int]] = []
    for at in chosen:
        last = blocks[runs[-1][-1]] if runs else None
        if (
            last is not None
            and blocks[at].start - (last.start + last.size) <= gap
            and blocks[at].start + blocks[at].size - blocks[runs[-1][0]].start <= RUN
        ):
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _batches(runs: list[list[int]], blocks: list[FileBlock]) -> Iterator[list[list[int]]]:
    batch: list[list[int]] = []
    size = 0
    for run in runs:
        _, length = _span(run, blocks)
        if batch and size + length > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(run)
        size += length
    if batch:
        yield batch


def _span(run: list[int], blocks: list[FileBlock]) -> tuple[int, int]:
    """Returns the first byte and the length of a run."""
    start = blocks[run[0]].start
    return start, blocks[run[-1]].start + blocks[run[-1]].size - start


def _aligned(start: int, length: int) -> Tensor:
    """Allocates memory for bytes of a file, aligned as in the file, so that numbers of any type can be viewed in it."""
    lead = start % ALIGN
    return torch.empty(lead + length, dtype=torch.uint8)[lead:]
