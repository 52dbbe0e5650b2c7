"""Defines the manifest, which lists the tensors and files of a checkpoint; writing it commits the checkpoint.

A folder `step-00000123` without `manifest.json` is an unfinished save: readers ignore it, and the next commit removes
it. Files are named after the attempt that wrote them, so two attempts at the same step never mix. The attempt that
first writes the manifest wins the step. The manifest ends with its own hash, so that a lost or changed entry is
detected. DCP's `.metadata`, for plain `dcp.load`, is written to the same folder right after the manifest. This project
never unpickles it.
"""

import hashlib
import json
import math
import pickle
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from torch.distributed.checkpoint.metadata import Metadata

from schemas.failure import CheckpointError, DamagedError
from schemas.problem import named_problem
from storage.objects import ObjectStore

MANIFEST = "manifest.json"
_RESTORE = "Restore it, or load another step."
METADATA = ".metadata"
_FOLDER = re.compile(r"step-(\d{8,})/")
_SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}$')


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorEntry(_Frozen):
    """A whole tensor."""

    dtype: str
    """Number type by torch's name, such as `bfloat16`."""
    shape: tuple[int, ...]

    @field_validator("dtype")
    @classmethod
    def _known(cls, name: str) -> str:
        if not isinstance(getattr(torch, name, None), torch.dtype):
            raise ValueError(f"{name!r} is no type of torch's")
        return name

    @property
    def torch_dtype(self) -> torch.dtype:
        """Returns the number type."""
        return getattr(torch, self.dtype)


class TensorPiece(_Frozen):
    """A box of a tensor: row-major numbers in one range of a file."""

    tensor: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    """Offset of the piece's numbers in the file, in bytes."""
    bytes: int
    block: int = Field(gt=0)
    """Bytes between two checksums, a multiple of the size of a number."""
    sums: tuple[int, ...]
    """CRC-32 of each block."""


class FileEntry(_Frozen):
    """A whole file."""

    bytes: int
    sha256: str


class Manifest(_Frozen):
    """A committed checkpoint."""

    format: Literal["flywheel-checkpoint-1"] = "flywheel-checkpoint-1"
    step: int
    created: datetime
    ranks: int
    """Number of ranks that wrote the checkpoint."""
    extra: dict[str, Any]
    """Small JSON of the caller: seed, sampler position, job."""
    tensors: dict[str, TensorEntry]
    files: dict[str, FileEntry]
    """Entries by file name inside the checkpoint's folder."""
    pieces: tuple[TensorPiece, ...] = Field(repr=False)
    sealed: bool = Field(default=True, exclude=True)
    """Whether the manifest's hash matches; manifests of earlier versions have no hash, and may lack a tensor."""

    @property
    def tensor_bytes(self) -> int:
        """Counts the bytes of all tensors."""
        return sum(piece.bytes for piece in self.pieces)


def folder_of(step: int) -> str:
    """Returns the folder of a step's checkpoint."""
    return f"step-{step:08d}"


def committed(store: ObjectStore) -> list[int]:
    """Lists the steps that have a committed checkpoint, ascending."""
    return _committed(store.sizes())


def read_manifest(store: ObjectStore, step: int | None = None) -> Manifest:
    """Reads the manifest of a step, or of the last one; checks its hash, tensors and file sizes.

    Raises:
        CheckpointError: no such checkpoint.
        DamagedError: the manifest's hash differs, a tensor is not whole, a file is missing or cut.
    """
    sizes = store.sizes()
    steps = _committed(sizes)
    if not steps:
        raise CheckpointError(f"There is no committed checkpoint at {store.place}.", "Check the address.")
    step = steps[-1] if step is None else step
    if step not in steps:
        there = ", ".join(map(str, steps))
        raise CheckpointError(f"There is no checkpoint of step {step} at {store.place}.", f"There are: {there}.")
    folder = folder_of(step)
    try:
        manifest = _opened(store.get(f"{folder}/{MANIFEST}"), store.path(f"{folder}/{MANIFEST}"))
    except FileNotFoundError as error:
        problem = f"{store.path(folder)} was removed while it was read."
        raise CheckpointError(problem, "Load it again: another process keeps newer checkpoints there.") from error
    for name, entry in manifest.files.items():
        size = sizes.get(f"{folder}/{name}")
        if size != entry.bytes and name != METADATA:
            state = "is missing" if size is None else f"has {size} bytes in place of {entry.bytes}"
            raise DamagedError(f"{store.path(folder)}/{name} {state}.", _RESTORE)
    return manifest


def commit(store: ObjectStore, manifest: Manifest, metadata: Metadata) -> Manifest:
    """Commits written files as a checkpoint: the manifest, by one atomic write, then DCP's metadata.

    Returns:
        The manifest, with the metadata's file added.

    Raises:
        CheckpointError: a file is missing or differs from what was written, or the step has a checkpoint already.
    """
    folder = folder_of(manifest.step)
    sizes = store.sizes(folder)
    for name, entry in manifest.files.items():
        if sizes.get(f"{folder}/{name}") != entry.bytes:
            raise _gone(store, f"{folder}/{name}")
    data = pickle.dumps(metadata)
    entry = FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    whole = manifest.model_copy(update={"files": {**manifest.files, METADATA: entry}})
    try:
        written = store.put_once(f"{folder}/{MANIFEST}", _sealed(whole))
    except FileNotFoundError as error:  # another run has cleared the place
        raise _gone(store, folder) from error
    if not written:
        raise already_there(store, manifest.step)
    store.put(f"{folder}/{METADATA}", data)
    return whole


def _gone(store: ObjectStore, name: str) -> CheckpointError:
    problem = f"{store.path(name)} is not there as it was written."
    return CheckpointError(problem, "Two runs cannot save to one place at the same time.")


def set_aside(store: ObjectStore, step: int) -> str:
    """Renames a checkpoint, with all its files; returns its new path."""
    aside = f"damaged-{step:08d}-{uuid.uuid4().hex[:8]}"
    store.move(folder_of(step), aside)
    return store.path(aside)


def already_there(store: ObjectStore, step: int) -> CheckpointError:
    """Makes the error for a save over a committed checkpoint."""
    problem = f"{store.path(folder_of(step))} is already there."
    return CheckpointError(problem, "Nothing was overwritten; load it, or name another place.")


def tidy(store: ObjectStore, keep: int) -> None:
    """Removes all but the last `keep` checkpoints, and files of interrupted saves, which no manifest names.

    A manifest is removed before its files, so no reader sees a checkpoint with missing files.
    """
    sizes = store.sizes()
    steps = _committed(sizes)
    for step in steps[:-keep]:
        store.delete(f"{folder_of(step)}/{MANIFEST}")
    kept = {folder_of(step): step for step in steps[-keep:]}
    named = {folder: _files(store, folder) for folder in kept}
    for name in sizes:
        folder, _, file = name.partition("/")
        known = named.get(folder, set())
        if _FOLDER.match(name) and known is not None and file not in known:
            store.delete(name)
    store.prune("step-*")


def discard(store: ObjectStore, step: int, attempt: str) -> None:
    """Removes the files that one attempt wrote."""
    for name in store.sizes(folder_of(step)):
        if name.partition("/")[2].startswith(attempt):
            store.delete(name)
    store.prune(folder_of(step))


def checked_extra(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copies `extra` in the form that a load returns.

    Raises:
        CheckpointError: `extra` is no plain JSON.
    """
    try:
        return json.loads(json.dumps(dict(extra or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"`extra` is not JSON: {error}.", "Tensors belong into the state.") from error


def _committed(names: Mapping[str, int]) -> list[int]:
    found = (_FOLDER.match(name) for name in names if name.endswith(f"/{MANIFEST}"))
    return sorted(int(match[1]) for match in found if match)


def _files(store: ObjectStore, folder: str) -> set[str] | None:
    """Lists the files of a checkpoint; None if its manifest cannot be read."""
    try:
        return {*json.loads(store.get(f"{folder}/{MANIFEST}"))["files"], MANIFEST}
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _sealed(manifest: Manifest) -> bytes:
    body = manifest.model_dump_json().encode()
    return body[:-1] + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}'


def _opened(data: bytes, where: str) -> Manifest:
    """Parses a manifest after checking its hash; manifests of earlier versions have none."""
    seal = _SEAL.search(data)
    body = data[: seal.start()] + b"}" if seal else data
    if seal and hashlib.sha256(body).hexdigest().encode() != seal[1]:
        raise DamagedError(f"{where} differs from the saved file (sha256).", _RESTORE)
    try:
        manifest = Manifest.model_validate_json(body)
    except ValidationError as error:
        problem = f"{where} is not a checkpoint's manifest of this version ({named_problem(error)})."
        raise DamagedError(problem, _RESTORE) from error
    _check_whole(manifest, where)
    return manifest.model_copy(update={"sealed": bool(seal)})


def _check_whole(manifest: Manifest, where: str) -> None:
    """Raises DamagedError unless the pieces form whole tensors and are within the listed files."""
    held: Counter[str] = Counter()
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for piece in manifest.pieces:
        entry = manifest.tensors.get(piece.tensor)
        if entry is None or (piece.tensor, piece.offsets) in seen or not _fits(piece, entry):
            raise DamagedError(f"{where}: a piece of `{piece.tensor}` at {piece.offsets} does not fit.", _RESTORE)
        if piece.bytes and piece.file not in manifest.files:
            raise DamagedError(f"{where} does not name {piece.file}, which holds `{piece.tensor}`.", _RESTORE)
        seen.add((piece.tensor, piece.offsets))
        held[piece.tensor] += math.prod(piece.sizes)
    for name, entry in manifest.tensors.items():
        if held[name] != math.prod(entry.shape):
            problem = f"{where} locates {held[name]} of the {math.prod(entry.shape)} numbers of `{name}`."
            raise DamagedError(problem, _RESTORE)


def _fits(piece: TensorPiece, entry: TensorEntry) -> bool:
    ends = zip(piece.offsets, piece.sizes, entry.shape, strict=False)
    numbers = math.prod(piece.sizes) * entry.torch_dtype.itemsize
    return (
        len(piece.offsets) == len(piece.sizes) == len(entry.shape)
        and all(offset >= 0 and offset + size <= length for offset, size, length in ends)
        and piece.bytes == numbers
        and len(piece.sums) == -(-piece.bytes // piece.block)
    )
