"""Works on checkpoints without a training: inspects, checks, reshards and reads tensors."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from learning.checkpoint.exchange import place_own, read_blocks
from learning.checkpoint.loading import described, loading_plan, taken
from learning.checkpoint.manifest import (
    MANIFEST,
    METADATA,
    Manifest,
    TensorEntry,
    already_there,
    commit,
    committed,
    discard,
    folder_of,
    read_manifest,
)
from learning.checkpoint.planner import global_plan, local_plan
from learning.checkpoint.shard_file import write_file
from learning.checkpoint.state import Box, LocalBox, State, Stretch
from schemas.failure import FlywheelError, UsageError
from storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class TensorKind:
    """Type and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inspected:
    """Description of a checkpoint."""

    place: str
    steps: list[int]
    """All committed steps."""
    step: int
    created: str
    """Time of the save, ISO 8601."""
    ranks: int
    bytes: int
    """Bytes of all files."""
    tensor_bytes: int
    extra: Mapping[str, Any]
    files: dict[str, int]
    """Bytes of each file by name."""
    tensors: dict[str, TensorKind]


@dataclass(frozen=True, slots=True)
class CheckpointCheck:
    """Result of comparing a checkpoint with its checksums."""

    step: int
    ok: bool
    files: int
    bytes: int
    damaged: dict[str, list[str]]
    """Tensors in each damaged file."""


def inspect(store: ObjectStore, step: int | None = None) -> Inspected:
    """Describes a checkpoint; the last one if no step is given.

    Raises:
        CheckpointError: as in `read_manifest`.
    """
    manifest = read_manifest(store, step)
    return Inspected(
        place=store.place,
        steps=committed(store),
        step=manifest.step,
        created=manifest.created.isoformat(),
        ranks=manifest.ranks,
        bytes=sum(entry.bytes for entry in manifest.files.values()),
        tensor_bytes=manifest.tensor_bytes,
        extra=manifest.extra,
        files={name: entry.bytes for name, entry in manifest.files.items()},
        tensors={name: TensorKind(one.dtype, tuple(one.shape)) for name, one in manifest.tensors.items()},
    )


def verify(store: ObjectStore, step: int | None = None) -> CheckpointCheck:
    """Reads every byte of a checkpoint and compares it with the checksums of the save.

    Raises:
        CheckpointError: as in `read_manifest`.
    """
    manifest = read_manifest(store, step)
    damaged: dict[str, list[str]] = {}
    for name, entry in manifest.files.items():
        if name == METADATA and not store.exists(f"{folder_of(manifest.step)}/{name}"):
            continue  # DCP's metadata, missing if the save was killed before writing it
        if _sha256(store, f"{folder_of(manifest.step)}/{name}", entry.bytes) != entry.sha256:
            damaged[name] = sorted({piece.tensor for piece in manifest.pieces if piece.file == name})
    read = sum(entry.bytes for entry in manifest.files.values())
    return CheckpointCheck(manifest.step, not damaged, len(manifest.files), read, damaged)


def reshard(source: ObjectStore, target: ObjectStore, ranks: int, step: int | None = None) -> Manifest:
    """Writes a copy of a checkpoint in rows for another number of ranks, with one rank's part in memory at a time.

    A load does not need this, since it reshards while it reads. Resharding avoids small reads if the same number of
    ranks loads often.

    Raises:
        UsageError: `ranks` is below 1.
        CheckpointError: the checkpoint does not exist or is damaged, or the target has this step already.
    """
    if ranks < 1:
        raise UsageError(f"`--ranks` is {ranks}.", "Give at least 1.")
    manifest = read_manifest(source, step)
    folder, attempt = folder_of(manifest.step), uuid.uuid4().hex[:8]
    if f"{folder}/{MANIFEST}" in target.sizes(folder):
        raise already_there(target, manifest.step)
    plans, metadata = global_plan([local_plan(row_shards(manifest.tensors, rank, ranks)) for rank in range(ranks)])
    written = []
    try:
        for rank, plan in enumerate(plans):
            slots = taken(plan)
            _fill(source, manifest, [LocalBox(slot.tensor, slot.box, slot.memory) for slot in slots])
            written.append(write_file(target, folder, f"{attempt}-{rank:05d}.distcp", slots))
        return commit(target, *described(metadata, written, manifest.step, manifest.extra))
    except FlywheelError:
        discard(target, manifest.step, attempt)
        raise


def read_tensors(store: ObjectStore, manifest: Manifest, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """Yields whole tensors, one at a time.

    Raises:
        CheckpointError: the checkpoint is damaged; the message names the file.
    """
    for name in names:
        entry = manifest.tensors[name]
        tensor = torch.empty(entry.shape, dtype=entry.torch_dtype)
        _fill(store, manifest, [LocalBox(name, Box((0,) * tensor.ndim, entry.shape), tensor)])
        yield name, tensor


def row_shards(tensors: Mapping[str, TensorEntry], rank: int, ranks: int) -> State:
    """Returns the rows of every tensor that a rank would hold, as `Stretch`es without memory."""
    state: dict[str, Stretch] = {}
    for at, (name, entry) in enumerate(tensors.items()):
        count = Box(entry.shape, entry.shape).numel
        rows = entry.shape[0] if entry.shape else 1
        row = count // rows if rows else 0
        share = -(-rows // ranks)
        turn = rank if entry.shape else (rank - at) % ranks
        low, high = min(rows, turn * share), min(rows, (turn + 1) * share)
        numbers = torch.empty((high - low) * row, dtype=entry.torch_dtype, device="meta")
        state[name] = Stretch(numbers, entry.shape, low * row)
    return state


def _fill(store: ObjectStore, manifest: Manifest, holdings: list[LocalBox]) -> None:
    plan = loading_plan(manifest, [[(held.name, held.box) for held in holdings]])
    dtypes = {name: entry.torch_dtype for name, entry in manifest.tensors.items()}
    place_own(plan, 0, read_blocks(store, folder_of(manifest.step), plan, 0, dtypes), holdings)


def _sha256(store: ObjectStore, name: str, size: int) -> str:
    digest = hashlib.sha256()
    for part in store.chunks(name, size):
        digest.update(part)
    return digest.hexdigest()
