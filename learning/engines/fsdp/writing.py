"""Writes a trained model's directory in parallel: each rank holds and writes only its part of the files."""

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from learning.engines.fsdp.adapters import is_adapter, merged, unadapted
from learning.engines.fsdp.model import SHARD, write_model
from learning.engines.fsdp.nf4 import shape_of

LEAST = 32 << 20
"""Minimum bytes of a file that is worth a separate part."""


def write_parts(
    model: Any, dtype: torch.dtype, folder: Path, rank: int, writers: int, least: int = LEAST, most: int = SHARD
) -> None:
    """Writes the weights with merged adapters, as `transformers` names them; all ranks call it.

    Rank 0 writes a small model as one file.

    Args:
        model: the sharded model.
        dtype: number type of the weights in the files.
        folder: folder with a copy of the parent's other files, which all writers can access. rank, writers: this rank,
        and the number of ranks that write a part; these are the first ranks. least, most: minimum and maximum bytes of
        a file.
    """
    sizes = {
        unadapted(name): shape_of(one).numel() * dtype.itemsize
        for name, one in model.named_parameters()
        if not is_adapter(name)
    }
    files = _files(sizes, writers, least, most)
    count = max(files.values()) + 1
    held: dict[int, dict[str, Tensor]] = {}
    for name, full in merged(model):
        file = files[name]
        if file * writers // count == rank:
            held.setdefault(file, {})[name] = full.detach().to("cpu", dtype)
    if count == 1:
        if rank == 0:
            write_model(model, held[0], folder, most)
        return
    mine = {file: _written(model, state, folder / _name(file, count)) for file, state in sorted(held.items())}
    everyone: list[Any] = [mine]
    if dist.is_initialized():
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
    if rank == 0:
        places = {key: _name(file, count) for one in everyone for file, keys in one.items() for key in keys}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(places.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _files(sizes: dict[str, int], writers: int, least: int, most: int) -> dict[str, int]:
    """Maps names of weights to numbers of files: one file per writer, more for a large model, and fewer for a small
    model."""
    total = sum(sizes.values())
    count = max(1, min(writers, total // least))
    if total > most * count:
        count = writers * -(-total // (most * writers))
    ends = accumulate(sizes.values())
    found = {name: min(count - 1, (end - 1) * count // total) for name, end in zip(sizes, ends, strict=True)}
    numbers = {file: number for number, file in enumerate(sorted(set(found.values())))}
    return {name: numbers[file] for name, file in found.items()}


def _name(file: int, count: int) -> str:
    return f"model-{file + 1:05d}-of-{count:05d}.safetensors"


def _written(model: Any, state: dict[str, Tensor], path: Path) -> list[str]:
    """Writes one file; returns the names in it."""
    from safetensors.torch import save_file
    from transformers.core_model_loading import revert_weight_conversion

    named = {key: one.contiguous() for key, one in revert_weight_conversion(model, state).items()}
    save_file(named, path, metadata={"format": "pt"})
    return list(named)
