"""Converts checkpoints between trainers' formats, slice by slice; the result appears whole or not at all."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.atomic_folder import atomic_folder
from learning.conversion.dcp import check_sums, write_dcp
from learning.conversion.families import family_of, network_of, to_hugging_face, to_megatron
from learning.conversion.hugging_face import config_of, write_hugging_face
from learning.conversion.megatron import write_megatron
from learning.conversion.network import check_weights
from learning.conversion.opening import open_checkpoint
from learning.conversion.source import MASTER, WEIGHT, ForeignTensor, Source
from learning.conversion.stored import StoredTensor, equal
from models.safe import PICKLES
from schemas.failure import CheckpointError, UsageError

FORMATS = ("hf", "dcp", "flywheel", "megatron")
"""Formats that can be written."""
_WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "training", "adapter", *(f"*{one}" for one in PICKLES))
_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Converted:
    """Summary of a conversion."""

    directory: str
    format: str
    step: int | None
    tensors: int
    bytes: int
    """Bytes of the written numbers."""
    files: int
    notes: tuple[str, ...]
    """Parts that were left out or changed."""


def convert(
    path: Path,
    to: Path,
    form: str,
    shards: int = 1,
    parent: Path | None = None,
    step: int | None = None,
    prefix: str | None = None,
    family: str | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Converted:
    """Converts a checkpoint; `to` appears whole or not at all.

    Args:
        path: folder of the checkpoint, or of a trainer's checkpoints.
        to: a folder that does not exist yet.
        form: one of FORMATS.
        shards: number of files, or of ranks in DCP's format.
        parent: Hugging Face directory whose config describes the network. Its other files are copied to a Hugging Face
            directory.
        step: step to convert; the last one if not given.
        prefix: prefix of the weights' names in DCP's format; found by the names if not given.
        family: family for the mapping between Megatron's names and Hugging Face's; that of the config if not given.
        progress: gets the written and all bytes after each slice.

    Raises:
        UsageError: the format cannot be written, `to` exists, or an option is missing.
        CheckpointError: the checkpoint is of an unknown trainer or damaged, or a tensor is missing, doubled, of
            another shape, or not of the network (`check_weights`).
    """
    _check_usage(to, form, shards, parent)
    source = open_checkpoint(path, step, prefix)
    if family is not None and "megatron" not in (source.format, form):
        raise UsageError(
            f"`--family` has no effect from {source.format} to {form}.", "Megatron alone needs it; remove it."
        )
    config = {**source.sizes, **config_of(path), **config_of(parent or source.place)}
    source = _renamed(source, form, family, config)
    tensors, notes = _selected(source, form, family, config)
    if source.format == "flywheel":
        check_sums(source)
    origin = parent or (source.place if source.format == "hf" else None)
    if form == "hf" and origin is not None and (origin / "config.json").is_file():
        notes += check_weights(tensors, origin, source.place)
    total = sum(tensor.nbytes for tensor in tensors.values())
    done = 0

    def moved(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    with atomic_folder(to) as whole:
        if form == "hf":
            if origin is not None:
                shutil.copytree(origin, whole, ignore=shutil.ignore_patterns(*_WEIGHT_FILES))
            whole.mkdir(exist_ok=True)
            files = write_hugging_face(tensors, whole, shards, moved)
        elif form == "megatron":
            layers = network_of(config, path).layers
            files = write_megatron(tensors, whole, shards, source.step or 0, layers, moved)
        else:
            files = write_dcp(tensors, whole, shards, source.step or 0, source.extra, moved, form == "flywheel")
        if to.exists():
            raise _occupied(to)
    return Converted(str(to.absolute()), form, source.step, len(tensors), total, files, (*source.notes, *notes))


def _check_usage(to: Path, form: str, shards: int, parent: Path | None) -> None:
    if form not in FORMATS:
        read_only = " DeepSpeed's ZeRO files are only read." if form in ("deepspeed", "zero") else ""
        raise UsageError(f"`--format {form}` cannot be written.{read_only}", f"One of {', '.join(FORMATS)}.")
    if shards < 1:
        raise UsageError(f"`--shards` is {shards}.", "Give at least 1.")
    if to.exists():
        raise _occupied(to)
    if parent is not None and not (parent / "config.json").is_file():
        raise UsageError(f"`--parent`: {parent} has no config.json.", "Name a Hugging Face directory.")


def _occupied(to: Path) -> UsageError:
    return UsageError(f"{to} is already there.", "Name a new folder; nothing is overwritten.")


def _renamed(source: Source, form: str, family: str | None, config: Mapping[str, Any]) -> Source:
    """Gives the tensors of a Megatron checkpoint Hugging Face's names, if the format or the user requires it."""
    if source.format == form == "megatron":
        raise UsageError(f"{source.place} is a checkpoint of Megatron.", "Load it: Megatron reshards while it loads.")
    if source.format != "megatron" or (form != "hf" and family is None):
        return source
    mapping, network = family_of(family, config), network_of(config, source.place)
    entries: list[ForeignTensor] = []
    notes: dict[str, None] = {}
    kinds = [kind for kind in source.kinds if kind != "state" and (form != "hf" or kind == WEIGHT)]
    for kind in kinds:
        found, cut = to_hugging_face(source.of_kind(kind), mapping, network, source.place)
        entries += [ForeignTensor(f"{kind}:{name}", kind, name, tensor) for name, tensor in found.items()]
        notes |= dict.fromkeys(cut)
    if others := [kind for kind in source.kinds if kind not in kinds]:
        notes[f"left out: {', '.join(others)}"] = None
    return replace(source, format="renamed", entries=tuple(entries), notes=(*source.notes, *notes))


def _selected(
    source: Source, form: str, family: str | None, config: Mapping[str, Any]
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Selects and names the tensors to write, and describes the others."""
    if form == "hf":
        return _weights(source, config)
    if form == "megatron":
        weights, notes = _weights(source, config)
        mapping, network = family_of(family, config), network_of(config, source.place)
        return to_megatron(weights, mapping, network, source.place), notes
    if source.format in ("dcp", "flywheel", "megatron"):
        return {entry.name: entry.tensor for entry in source.entries}, []
    main = MASTER if MASTER in source.kinds else WEIGHT
    weights = {**source.of_kind(WEIGHT), **source.of_kind(main)}
    found = {f"model.{name}": tensor for name, tensor in weights.items()}
    for kind in source.kinds:
        if kind not in (WEIGHT, MASTER):
            found |= {f"optimizer.{kind}.{name}": tensor for name, tensor in source.of_kind(kind).items()}
    return found, []


def _weights(source: Source, config: Mapping[str, Any]) -> tuple[dict[str, StoredTensor], list[str]]:
    """Selects the weights alone: as the network computes with them, else the optimiser's fp32 copies."""
    weights = {**source.of_kind(MASTER), **source.of_kind(WEIGHT)}
    if not weights:
        raise CheckpointError(f"{source.place} has no weights.", "Convert it to `dcp`, which takes every tensor.")
    notes = []
    state = [kind for kind in source.kinds if kind not in (WEIGHT, MASTER)]
    if state:
        notes.append(f"left out, since the format has weights only: {', '.join(state)}")
    only = sorted(source.of_kind(MASTER).keys() - source.of_kind(WEIGHT).keys())
    if only:
        notes.append(f"{len(only)} weights are the optimiser's master weights, since the checkpoint has no others")
    head = next((name for name in weights if name.endswith(_HEAD)), None)
    embedding = next((name for name in weights if name.endswith(_EMBEDDING)), None)
    if config.get("tie_word_embeddings") and head and embedding:
        if not equal(weights[head], weights[embedding]):
            problem = f"`{head}` differs from `{embedding}`, to which the config ties it (`tie_word_embeddings`)."
            raise CheckpointError(problem, "Set tie_word_embeddings to false in the parent's config.json.")
        del weights[head]
        notes.append(f"`{head}` is left out, since the config ties it to `{embedding}`")
    return weights, notes
