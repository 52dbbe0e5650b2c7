"""Opens checkpoints in DCP's format, of torch, of this project and of Megatron Core, and writes them."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata

from learning.checkpoint import open_store, read_manifest
from learning.checkpoint.loading import described, unstaged
from learning.checkpoint.manifest import MANIFEST, METADATA, Manifest, TensorEntry, commit, folder_of
from learning.checkpoint.offline import row_shards, verify
from learning.checkpoint.planner import global_plan, local_plan
from learning.checkpoint.shard_file import Slot, write_file
from learning.checkpoint.state import Box
from learning.conversion.archive import read_archive, read_metadata
from learning.conversion.hugging_face import Progress
from learning.conversion.source import Source, entries_of, step_folder
from learning.conversion.stored import RESTORE, Piece, StoredTensor, row_major, slices
from schemas.failure import CheckpointError, DamagedError

_STEP = re.compile(r"(?:.*[-_])?(\d+)")
_RANK = re.compile(r"__(\d+)_\d+\.distcp")


def open_flywheel(path: Path, step: int | None, prefix: str | None) -> Source | None:
    """Opens a checkpoint of this project, after comparing every byte with its checksums; None if there is none.

    Args:
        path: folder of checkpoints, or of one step.
        step: step to open; the last one if not given.
        prefix: prefix of the weights' names; found by the names if not given.

    Raises:
        CheckpointError: there is no such step, or a file is damaged.
    """
    if (path / MANIFEST).is_file() and (match := re.fullmatch(r"step-(\d+)", path.name)):
        path, step = path.parent, int(match[1])
    if not any((one / MANIFEST).is_file() for one in path.glob("step-*")):
        return None
    store = open_store(path)
    manifest = read_manifest(store, step)
    folder = path / folder_of(manifest.step)
    tensors = _of_manifest(manifest, folder)
    layout = {"ranks": manifest.ranks}
    return Source(
        folder, "flywheel", "flywheel", manifest.step, layout, entries_of(tensors, prefix), extra=manifest.extra
    )


def check_sums(source: Source) -> None:
    """Compares the files of this project's checkpoint with their checksums; raises DamagedError if one differs."""
    assert source.step is not None
    found = verify(open_store(source.place.parent), source.step)
    if not found.ok:
        file, tensors = next(iter(found.damaged.items()))
        named = f", which holds `{tensors[0]}`," if tensors else ""
        raise DamagedError(f"{source.place / file}{named} differs from the saved data.", RESTORE)


def open_dcp(path: Path, step: int | None, prefix: str | None) -> Source | None:
    """Opens a checkpoint of `torch.distributed.checkpoint`; None if the folder is none.

    Raises:
        CheckpointError: a file is missing or damaged, or an object could run code.
    """
    if not (path / METADATA).is_file():
        found = step_folder(path, r"(?:[a-z_]*(?:step|iter)[a-z]*[-_]?)(\d+)", None, step) if path.is_dir() else None
        if found is None or not (found / METADATA).is_file():
            return None
        path = found
    tensors, objects = read_tensors_of(path)
    number = _STEP.fullmatch(path.name)
    ranks = {int(match[1]) for one in path.iterdir() if (match := _RANK.fullmatch(one.name))}
    notes = (left_out(objects),) if objects else ()
    return Source(
        path,
        "dcp",
        "torch.distributed.checkpoint",
        int(number[1]) if number else None,
        {"ranks": len(ranks)} if ranks else {},
        entries_of(tensors, prefix),
        notes=notes,
    )


def left_out(objects: list[str]) -> str:
    """Describes values that are no tensors, which conversions leave out."""
    more = f" and {len(objects) - 3} more" if len(objects) > 3 else ""
    return f"not converted, since they are no tensors: {', '.join(objects[:3])}{more}"


def read_tensors_of(folder: Path) -> tuple[dict[str, StoredTensor], list[str]]:
    """Reads the positions of all tensors of DCP's format, and the names of other values.

    Raises:
        DamagedError: a file is missing or cut, or a tensor's parts do not fit its shape.
        CheckpointError: the files are compressed, not archives of `torch.save`, or could run code.
    """
    metadata = read_metadata(folder / METADATA)
    if getattr(metadata, "mcore_data", None):
        problem = f"{folder / METADATA} has flattened optimiser state of Megatron Core before 0.15 (`mcore_data`)."
        raise CheckpointError(problem, "Save it with a newer Megatron Core, or without the optimiser's state.")
    shapes = metadata.state_dict_metadata
    parts: dict[str, list[Piece]] = {name: [] for name, one in shapes.items() if isinstance(one, TensorStorageMetadata)}
    chunks = {
        (name, tuple(chunk.offsets)): tuple(chunk.sizes)
        for name, one in shapes.items()
        if isinstance(one, TensorStorageMetadata)
        for chunk in one.chunks
    }
    for index, place in (metadata.storage_data or {}).items():
        if index.fqn not in parts:
            continue
        whole = shapes[index.fqn]
        assert isinstance(whole, TensorStorageMetadata)
        offsets = tuple(index.offset) if index.offset is not None else (0,) * len(whole.size)
        sizes = chunks.get((index.fqn, offsets))
        if sizes is None:
            raise DamagedError(f"{folder / METADATA}: `{index.fqn}` has no part at {offsets}.", RESTORE)
        parts[index.fqn] += _archived(folder, index.fqn, place, Box(offsets, sizes), whole.properties.dtype)
    tensors = {}
    for name, pieces in parts.items():
        whole = shapes[name]
        assert isinstance(whole, TensorStorageMetadata)
        tensors[name] = StoredTensor(whole.properties.dtype, tuple(whole.size), tuple(pieces))
    return tensors, [name for name, one in shapes.items() if isinstance(one, BytesStorageMetadata)]


def write_dcp(
    tensors: Mapping[str, StoredTensor],
    folder: Path,
    shards: int,
    step: int,
    extra: Mapping[str, Any],
    progress: Progress,
    keep_manifest: bool,
) -> int:
    """Writes tensors in rows, a file per shard, slice by slice; returns the number of files.

    Args:
        tensors: tensors by name.
        folder: a new folder: of checkpoints with a manifest, or of DCP's files alone.
        shards: number of ranks that the files are written for.
        step: the checkpoint's step.
        extra: small values for the manifest.
        progress: gets the bytes of each slice.
        keep_manifest: whether to write a checkpoint of this project, in a folder of its step.

    Raises:
        CheckpointError: a source file is damaged, or the disk is full.
    """
    place = folder if keep_manifest else folder.with_name(f"{folder.name}-steps")
    store = open_store(place)
    kinds = {
        name: TensorEntry(dtype=str(one.dtype).removeprefix("torch."), shape=one.shape) for name, one in tensors.items()
    }

    def numbers(slot: Slot) -> Iterator[Tensor]:
        for box in slices(slot.box, slot.memory.dtype):
            found = tensors[slot.tensor].read(box)
            yield found
            progress(found.nbytes)

    plans, metadata = global_plan([local_plan(row_shards(kinds, rank, shards)) for rank in range(shards)])
    written = [
        write_file(store, folder_of(step), f"__{rank}_0.distcp", unstaged(plan), numbers)
        for rank, plan in enumerate(plans)
    ]
    commit(store, *described(metadata, written, step, dict(extra)))
    if not keep_manifest:
        (place / folder_of(step)).replace(folder)
        (folder / MANIFEST).unlink()
        shutil.rmtree(place)
    return sum(one.entry.bytes > 0 for one in written)


def _of_manifest(manifest: Manifest, folder: Path) -> dict[str, StoredTensor]:
    parts: dict[str, list[Piece]] = {name: [] for name in manifest.tensors}
    for piece in manifest.pieces:
        if piece.bytes:
            box = Box(piece.offsets, piece.sizes)
            parts[piece.tensor].append(Piece(box, folder / piece.file, piece.start, row_major(box.sizes)))
    return {
        name: StoredTensor(one.torch_dtype, one.shape, tuple(parts[name])) for name, one in manifest.tensors.items()
    }


def _archived(folder: Path, name: str, place: Any, box: Box, dtype: torch.dtype) -> list[Piece]:
    """Finds the numbers of a saved part in its archive."""
    file = folder / place.relative_path
    if not file.resolve().is_relative_to(folder.resolve()):
        raise DamagedError(f"{folder / METADATA}: {place.relative_path!r} leads out of the folder.", RESTORE)
    if getattr(place, "transform_descriptors", None):
        problem = f"{file} is compressed ({', '.join(map(str, place.transform_descriptors))})."
        raise CheckpointError(problem, "Save the checkpoint without transforms.")
    if not file.is_file():
        raise DamagedError(f"{file} is missing; it holds a part of `{name}`.", RESTORE)
    stored = read_archive(file, place.offset, place.length)
    if not isinstance(stored, StoredTensor) or (stored.dtype, stored.shape) != (dtype, box.sizes):
        kind = f"{stored.dtype} {stored.shape}" if isinstance(stored, StoredTensor) else type(stored).__name__
        raise DamagedError(
            f"{file}: the part of `{name}` at {box.offsets} is {kind}, not {dtype} {box.sizes}.", RESTORE
        )
    return [Piece(box, file, piece.start, piece.strides) for piece in stored.pieces]
