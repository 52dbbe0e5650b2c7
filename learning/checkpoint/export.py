"""A checkpoint's weights as a Hugging Face directory: safetensors beside the parent's config and processor files."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from learning.checkpoint.boxes import Box
from learning.checkpoint.manifest import Manifest, folder_of, read_manifest
from learning.checkpoint.offline import read_tensors
from models.tiny.layout import CRITIC
from schemas.failure import CheckpointError, UsageError
from storage.objects import ObjectStore

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*", "*.distcp")
SHARD = 5 << 30
"""Most bytes of one file of weights, as transformers itself writes them."""

_MEND = "Name the parent it was trained from."

Kinds = dict[str, tuple[torch.dtype, tuple[int, ...]]]


def export(
    store: ObjectStore, parent: Path, to: Path, step: int | None = None, prefix: str = "model.", most: int = SHARD
) -> dict[str, Any]:
    """Writes a directory that plain `transformers` loads; it appears whole or not at all.

    Args:
        store: where the checkpoint is.
        parent: the Hugging Face directory that the training began from; its other files are copied, and its weights,
            if it has them, say which names, shapes and types the model has.
        to: a new or empty folder.
        step: which checkpoint; the last one if not given.
        prefix: of the names of weights in the checkpoint; it is left out in the export.
        most: bytes of one file.

    Raises:
        UsageError: `to` holds something, or `parent` is no Hugging Face directory.
        CheckpointError: no weights of that prefix, another architecture than the parent's, damage.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"`--to`: {to} is not an empty folder.", "Name a new one; nothing is overwritten.")
    if not (parent / "config.json").is_file():
        raise UsageError(f"`--parent`: {parent} has no config.json.", "Name the directory the training began from.")
    manifest = read_manifest(store, step)
    where = store.path(folder_of(manifest.step))
    kinds = _weights(manifest, prefix, where)
    expected = _parent_kinds(parent)
    _check(kinds, expected, where, parent)
    target = to.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        whole = Path(folder) / "model"
        shutil.copytree(parent, whole, ignore=shutil.ignore_patterns(*WEIGHTS, "job.json"))
        files = _write(store, manifest, prefix, {**kinds, **expected}, whole, most)
        whole.replace(target)
    return {"step": manifest.step, "directory": str(target), "tensors": len(kinds), "files": files}


def _weights(manifest: Manifest, prefix: str, where: str) -> Kinds:
    found = {
        name.removeprefix(prefix): (entry.torch_dtype, entry.shape)
        for name, entry in manifest.tensors.items()
        if name.startswith(prefix)
    }
    if not found:
        begin = ", ".join(sorted({f"`{name.split('.')[0]}.`" for name in manifest.tensors})[:8])
        raise CheckpointError(f"{where} has no tensor whose name begins with `{prefix}`.", f"Names begin with {begin}.")
    return found


def _parent_kinds(parent: Path) -> Kinds:
    """What the parent's weights are; empty if it has none."""
    found: Kinds = {}
    for file in sorted(path for path in parent.glob("*.safetensors") if path.name != CRITIC):
        with safe_open(file, "pt") as content:
            for name in content.keys():  # noqa: SIM118  not a mapping
                part = content.get_slice(name)
                found[name] = (_TYPES[part.get_dtype()], tuple(part.get_shape()))
    return found


def _check(kinds: Kinds, expected: Kinds, where: str, parent: Path) -> None:
    if not expected:
        return
    for name in sorted(kinds.keys() ^ expected.keys()):
        has, lacks = (where, parent) if name in kinds else (parent, where)
        raise CheckpointError(f"{has} has the weight `{name}` and {lacks} has not.", _MEND)
    for name, (_, shape) in kinds.items():
        if shape != expected[name][1]:
            problem = f"`{name}` is {shape} in {where} and {expected[name][1]} in {parent}."
            raise CheckpointError(problem, _MEND)


def _write(store: ObjectStore, manifest: Manifest, prefix: str, kinds: Kinds, folder: Path, most: int) -> int:
    """Writes the weights in files of at most `most` bytes; returns how many."""
    groups = _groups(kinds, most)
    names = {
        at: "model.safetensors" if len(groups) == 1 else f"model-{at + 1:05d}-of-{len(groups):05d}.safetensors"
        for at in range(len(groups))
    }
    for at, group in enumerate(groups):
        read = read_tensors(store, manifest, [prefix + name for name in group])
        content = {name.removeprefix(prefix): tensor.to(kinds[name.removeprefix(prefix)][0]) for name, tensor in read}
        save_file(content, folder / names[at], metadata={"format": "pt"})
    if len(groups) > 1:
        index = {name: names[at] for at, group in enumerate(groups) for name in group}
        total = sum(_size(kinds, name) for name in kinds)
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2)
        (folder / "model.safetensors.index.json").write_text(text)
    return len(groups)


def _groups(kinds: Kinds, most: int) -> list[list[str]]:
    groups: list[list[str]] = []
    room = 0
    for name in kinds:
        size = _size(kinds, name)
        if not groups or size > room:
            groups.append([])
            room = most
        groups[-1].append(name)
        room -= size
    return groups


def _size(kinds: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], name: str) -> int:
    dtype, shape = kinds[name]
    return Box(shape, shape).numel * dtype.itemsize


_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
