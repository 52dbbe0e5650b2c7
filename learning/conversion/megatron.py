"""Opens and writes Megatron Core's distributed checkpoints (`torch_dist`): DCP's format with Megatron's names.

Source: `megatron/core/dist_checkpointing` of Megatron Core 0.16.1.
"""

import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

from learning.checkpoint.manifest import METADATA
from learning.conversion.archive import Record, read_archive, read_metadata
from learning.conversion.dcp import left_out, read_tensors_of, write_dcp
from learning.conversion.hugging_face import Progress
from learning.conversion.source import Source, entries_of, step_folder
from learning.conversion.stored import RESTORE, StoredTensor
from schemas.failure import CheckpointError, DamagedError

_CONFIG, _COMMON, _LATEST = "metadata.json", "common.pt", "latest_checkpointed_iteration.txt"
_BACKEND = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
_EXTRA = "._extra_state/"
"""Part of the name of state that Transformer Engine adds to layers; without FP8 it is empty."""
_EXTRA_LAYERS = ("self_attention.linear_proj", "self_attention.linear_qkv", "mlp.linear_fc1", "mlp.linear_fc2")
_SIZES = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_query_groups",
    "head_dim": "kv_channels",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "vocab_size": "vocab_size",
}
"""Names of sizes in a Hugging Face config, and in Megatron's arguments."""
_WRAPPED = "module."
"""Prefix of the weights' names in checkpoints of NeMo."""
_PARALLEL = ("tensor", "pipeline", "context", "expert")


def open_megatron(path: Path, step: int | None, prefix: str | None) -> Source | None:
    """Opens a distributed checkpoint of Megatron Core; None if the folder is none.

    Raises:
        CheckpointError: it is of another backend than `torch_dist`, a file is missing or damaged, or an object could
            run code.
    """
    if any(path.glob("mp_rank_*/model_optim_rng.pt")):
        raise CheckpointError(f"{path} is in Megatron's older format (`torch`).", "Save it with `torch_dist`.")
    if not _is_megatron(path):
        folder = step_folder(path, r"iter_(\d+)", _LATEST, step)
        if folder is None:
            return None
        if not _is_megatron(folder):
            return open_megatron(folder, None, prefix)
        path = folder
    backend = json.loads((path / _CONFIG).read_text()).get("sharded_backend")
    if backend != _BACKEND["sharded_backend"]:
        raise CheckpointError(f"{path / _CONFIG} has the backend `{backend}`.", "Save it with `torch_dist`.")
    common = read_archive(path / _COMMON)
    if not isinstance(common, dict):
        raise DamagedError(f"{path / _COMMON} is no dictionary.", RESTORE)
    tensors, objects = read_tensors_of(path)
    arguments = vars(common["args"]) if isinstance(common.get("args"), Record) else {}
    degrees = {kind: arguments.get(f"{kind}_model_parallel_size") for kind in _PARALLEL}
    degrees["context"] = arguments.get("context_parallel_size")
    values = [name for name in objects if _EXTRA not in name]
    if prefix is None and all(name.startswith(_WRAPPED) for name in tensors if not name.startswith("optimizer.")):
        prefix = _WRAPPED
    tied = arguments.get("untie_embeddings_and_output_weights")
    sizes = {theirs: arguments[ours] for theirs, ours in _SIZES.items() if arguments.get(ours)}
    return Source(
        path,
        "megatron",
        "Megatron Core",
        common.get("iteration"),
        {kind: degree for kind, degree in degrees.items() if degree},
        entries_of(tensors, prefix),
        sizes=sizes if tied is None else {**sizes, "tie_word_embeddings": not tied},
        notes=(left_out(values),) if values else (),
    )


def write_megatron(
    tensors: Mapping[str, StoredTensor], folder: Path, shards: int, step: int, layers: int, progress: Progress
) -> int:
    """Writes weights with Megatron's names, without optimiser state; returns the number of files with tensors.

    Args:
        tensors: weights by Megatron's names.
        folder: a new folder, which gets a folder of the iteration.
        shards: number of ranks that the files are written for.
        step: iteration.
        layers: number of layers of the network.
        progress: gets the bytes of each slice.

    Raises:
        CheckpointError: a source file is damaged, or the disk is full.
    """
    folder.mkdir()
    place = folder / f"iter_{step:07d}"
    files = write_dcp(tensors, place, shards, step, {}, progress, keep_manifest=False)
    _write_extra_states(place, layers)
    torch.save({"iteration": step, "checkpoint_version": 3.0}, place / _COMMON)
    (place / _CONFIG).write_text(json.dumps({**_BACKEND, "common_backend": "torch", "common_backend_version": 1}))
    (folder / _LATEST).write_text(str(step))
    return files


def _write_extra_states(place: Path, layers: int) -> None:
    """Adds the empty states that a strict load of Megatron expects; all of them are the same bytes of one file."""
    content = io.BytesIO()
    torch.save([None], content)
    file = "__0_1.distcp"
    (place / file).write_bytes(content.getvalue())
    names = [
        f"decoder.layers.{layer}{_EXTRA}shard_{number}_{layers}" for layer in _EXTRA_LAYERS for number in range(layers)
    ]
    metadata = read_metadata(place / METADATA)
    stored = _StorageInfo(file, 0, len(content.getvalue()))
    whole = replace(
        metadata,
        state_dict_metadata={**metadata.state_dict_metadata, **{name: BytesStorageMetadata() for name in names}},
        storage_data={**metadata.storage_data, **{MetadataIndex(name): stored for name in names}},
    )
    (place / METADATA).write_bytes(pickle.dumps(whole))


def _is_megatron(path: Path) -> bool:
    return (path / _CONFIG).is_file() and (path / _COMMON).is_file()
