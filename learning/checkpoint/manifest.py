"""The manifest: what a checkpoint holds and where. Writing it is the commit.

A folder `step-00000123` without `manifest.json` is somebody's unfinished work: readers do not see it, and the next
commit sweeps it. Files are named after the attempt that wrote them, so two attempts at one step never mix. Beside the
manifest lies DCP's `.metadata`, for plain `dcp.load`; we never unpickle it.
"""

import hashlib
import json
import pickle
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch.distributed.checkpoint.metadata import Metadata

from learning.checkpoint.store import Store
from schemas.failure import CheckpointError

MANIFEST = "manifest.json"
_METADATA = ".metadata"
_FOLDER = re.compile(r"step-(\d{8,})/")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorEntry(_Frozen):
    """A tensor as a whole."""

    dtype: str
    """As torch names it, such as `bfloat16`."""
    shape: tuple[int, ...]

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type itself."""
        return getattr(torch, self.dtype)


class Piece(_Frozen):
    """A box of a tensor: row-major numbers in one stretch of a file."""

    tensor: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    """Byte of the file at which its numbers begin."""
    bytes: int
    block: int
    """Bytes between two checksums, a multiple of the size of a number."""
    sums: tuple[int, ...]
    """CRC-32 of each block."""


class FileEntry(_Frozen):
    """A file as a whole."""

    bytes: int
    sha256: str


class Manifest(_Frozen):
    """A committed checkpoint."""

    format: Literal["flywheel-checkpoint-1"] = "flywheel-checkpoint-1"
    step: int
    created: datetime
    ranks: int
    """How many ranks wrote it."""
    extra: dict[str, Any]
    """Small JSON of the saver: seed, sampler position, job."""
    tensors: dict[str, TensorEntry]
    files: dict[str, FileEntry]
    """By name inside the checkpoint's folder."""
    pieces: tuple[Piece, ...] = Field(repr=False)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(piece.bytes for piece in self.pieces)


def folder_of(step: int) -> str:
    """The folder of a step's checkpoint."""
    return f"step-{step:08d}"


def committed(store: Store) -> list[int]:
    """The steps that have a committed checkpoint, ascending."""
    return _committed(store.sizes())


def read_manifest(store: Store, step: int | None = None) -> Manifest:
    """The manifest of a step, or of the last one; every file it names is there with its size.

    Raises:
        CheckpointError: no such checkpoint, a manifest that cannot be read, a missing or cut file.
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
        manifest = Manifest.model_validate_json(store.get(f"{folder}/{MANIFEST}"))
    except (ValidationError, FileNotFoundError) as error:
        problem = f"{store.path(folder)}/{MANIFEST} is not a checkpoint's manifest of this version."
        raise CheckpointError(problem, "Restore it, or load another step.") from error
    for name, entry in manifest.files.items():
        size = sizes.get(f"{folder}/{name}")
        if size != entry.bytes:
            state = "is missing" if size is None else f"has {size} bytes in place of {entry.bytes}"
            raise CheckpointError(f"{store.path(folder)}/{name} {state}.", "Restore it, or load another step.")
    return manifest


def commit(store: Store, manifest: Manifest, metadata: Metadata) -> Manifest:
    """Makes written files a checkpoint: DCP's metadata, then the manifest, by one atomic write.

    Returns:
        The manifest, which now names the metadata's file too.

    Raises:
        CheckpointError: a file is not there as it was written, or the step has a checkpoint already.
    """
    folder = folder_of(manifest.step)
    sizes = store.sizes(folder)
    for name, entry in manifest.files.items():
        if sizes.get(f"{folder}/{name}") != entry.bytes:
            problem = f"{store.path(folder)}/{name} is not there as it was written."
            raise CheckpointError(problem, "Two runs cannot save to one place at the same time.")
    if f"{folder}/{MANIFEST}" in sizes:
        raise already_there(store, manifest.step)
    data = pickle.dumps(metadata)
    store.delete(f"{folder}/{_METADATA}")
    store.put_once(f"{folder}/{_METADATA}", data)
    entry = FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    whole = manifest.model_copy(update={"files": {**manifest.files, _METADATA: entry}})
    if not store.put_once(f"{folder}/{MANIFEST}", whole.model_dump_json().encode()):
        raise already_there(store, manifest.step)
    return whole


def already_there(store: Store, step: int) -> CheckpointError:
    """The error of a save over a committed checkpoint."""
    problem = f"{store.path(folder_of(step))} is already there."
    return CheckpointError(problem, "Nothing was overwritten; load it, or name another place.")


def tidy(store: Store, keep: int) -> None:
    """Removes all but the last `keep` checkpoints, and what no manifest names: left by saves that died.

    A manifest goes before its files, so a checkpoint is never seen with some of them gone.
    """
    sizes = store.sizes()
    steps = _committed(sizes)
    for step in steps[:-keep]:
        store.delete(f"{folder_of(step)}/{MANIFEST}")
    kept = {folder_of(step): step for step in steps[-keep:]}
    named = {folder: set(_files(store, folder)) | {MANIFEST} for folder in kept}
    for name in sizes:
        folder, _, file = name.partition("/")
        if _FOLDER.match(name) and file not in named.get(folder, ()):
            store.delete(name)
    store.prune("step-*")


def discard(store: Store, step: int, attempt: str) -> None:
    """Removes what one attempt wrote."""
    for name in store.sizes(folder_of(step)):
        if name.partition("/")[2].startswith(attempt):
            store.delete(name)
    store.prune(folder_of(step))


def checked_extra(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of `extra` as it will come back.

    Raises:
        CheckpointError: it is not plain JSON.
    """
    try:
        return json.loads(json.dumps(dict(extra or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"`extra` is not JSON: {error}.", "Tensors belong into the state.") from error


def _committed(names: Mapping[str, int]) -> list[int]:
    found = (_FOLDER.match(name) for name in names if name.endswith(f"/{MANIFEST}"))
    return sorted(int(match[1]) for match in found if match)


def _files(store: Store, folder: str) -> list[str]:
    return list(json.loads(store.get(f"{folder}/{MANIFEST}"))["files"])
