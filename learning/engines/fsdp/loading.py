"""Loads each rank's shard of a directory's weights, so that no rank ever holds the whole model.

The model is made on `torch`'s meta device, without memory for weights. Only buffers that modules compute from their
settings, such as rotary frequencies, have memory. Then the model is sharded, gets memory for this rank's shards, and is
filled with ranges of the safetensors files. The rules of `transformers` convert names in files to names of modules. If
these rules must first transform a stored weight's shape, every rank reads the whole directory, with a warning.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from learning.engines.fsdp.adapters import is_adapter, unadapted
from learning.engines.fsdp.nf4 import is_packed, pack, shape_of
from learning.engines.fsdp.shards import local
from learning.parallel.packed_attention import LINEAR, NAME, SCREENS, name_windowed, separate_documents
from models.safe import SAFE, read_whole, weight_files, weights_of
from schemas.failure import CheckpointError

_DELTANETS = ("qwen3_5_text", "qwen3_5_moe_text")
"""Text stacks whose linear attention is a gated DeltaNet."""
_HINT = "Name an image-text-to-text model directory."


def empty_model(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Makes the model of a directory without its weights, with packed attention; `dtype` is its training type.

    Raises:
        CheckpointError: the directory's model cannot be trained.
    """
    weight_files(directory)
    return model_of_config(directory, dtype)


def model_of_config(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Makes the model of a directory that may have only `config.json`.

    Raises:
        CheckpointError: there is no `config.json`, or its model cannot be trained.
    """
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForImageTextToText

    if not (directory / "config.json").is_file():
        raise CheckpointError(f"{directory} has no config.json.", "Name a Hugging Face model directory.")
    experts = {"experts_implementation": "eager"} if dtype == torch.float64 else {}  # no grouped float64 kernel
    try:
        config = AutoConfig.from_pretrained(directory, **SAFE)
        with init_empty_weights(include_buffers=False):
            model: Any = AutoModelForImageTextToText.from_config(config, attn_implementation=NAME, **experts)
        model.tie_weights()
    except Exception as error:  # the library raises many types for a faulty directory
        raise CheckpointError(f"{directory}: {error}.", _HINT) from error
    prepare_interface(model, directory)
    return model


def prepare_interface(model: Any, directory: Path) -> None:
    """Prepares the vision tower to process all screens at once, and gated DeltaNet layers to process documents apart.

    Raises `CheckpointError` for a model that does not accept encoded screens or packed documents.
    """
    core, text = model.base_model, model.config.get_text_config()
    lacks = [name for name in ("get_image_features", "language_model", "visual") if not hasattr(core, name)]
    if lacks:
        raise CheckpointError(
            f"{directory}: a {model.config.model_type!r} model has no {', '.join(lacks)}.",
            "The trainer takes models of the Qwen-VL family and those with the same interface.",
        )
    kinds = {*(getattr(text, "layer_types", None) or ())}
    others = sorted(kinds - ({"full_attention", LINEAR} if text.model_type in _DELTANETS else {"full_attention"}))
    if others:
        raise CheckpointError(
            f"{directory}: {', '.join(others)} of {text.model_type}.",
            "The trainer runs full attention, and the gated DeltaNet of Qwen3.5.",
        )
    separate_documents(model)
    model.config.vision_config._attn_implementation = SCREENS
    name_windowed(model.base_model.visual)


def materialize(net: nn.Module, device: torch.device) -> None:
    """Allocates this rank's shards of a sharded model on the meta device; adapters and buffers are unchanged."""
    kept = {name: one for name, one in net.named_buffers()}
    drawn = {name: one for name, one in net.named_parameters() if one.device.type != "meta"}
    drawn = {name: local(one).detach().clone() for name, one in drawn.items()}
    net.to_empty(device=device)
    with torch.no_grad():
        for name, one in net.named_buffers():
            one.copy_(kept[name])
        for name, one in net.named_parameters():
            if name in drawn:
                local(one).copy_(drawn[name])


@torch.no_grad()
def fill_from(model: Any, directory: Path) -> bool:
    """Fills this rank's shards from a directory's files; returns whether reading ranges was enough.

    Raises:
        CheckpointError: a weight is missing or of another shape, or a file cannot be read.
    """
    wanted = dict(_weights(model))
    with ExitStack() as files:
        try:
            stored = _stored(directory, model, files)
        except CheckpointError:
            raise
        except Exception as error:  # the library raises many types for a faulty directory
            raise CheckpointError(f"{directory}: {error}.", _HINT) from error
        turned = any(
            list(stored[name].get_shape()) != list(shape_of(wanted[name])) for name in wanted.keys() & stored.keys()
        )
        if wanted.keys() <= stored.keys() and not turned:
            for name, weight in wanted.items():
                here = _range(weight)
                if all(part.stop > part.start for part in here):
                    _put(weight, stored[name][here] if here else stored[name][:])
            return True
    from transformers import AutoModelForImageTextToText

    fill_with(model, dict(read_whole(AutoModelForImageTextToText, directory).named_parameters()), directory)
    return False


@torch.no_grad()
def fill_with(model: Any, weights: Mapping[str, Tensor], directory: Path) -> None:
    """Fills this rank's shards from whole weights by their `transformers` names.

    Raises:
        CheckpointError: a weight is missing or has another shape.
    """
    for name, weight in _weights(model):
        if name not in weights or weights[name].shape != shape_of(weight):
            raise CheckpointError(f"{directory}: the weight {name!r} is missing or of another shape.", _HINT)
        _put(weight, weights[name][_range(weight)])


def _weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    return ((unadapted(name), weight) for name, weight in model.named_parameters() if not is_adapter(name))


def _put(weight: Tensor, numbers: Tensor) -> None:
    """Fills this rank's shard with the numbers of its range, in 4 bits if the shard is in 4 bits."""
    mine = local(weight)
    mine.copy_(pack(numbers.to(mine.device)) if is_packed(weight) else numbers)


def _range(weight: Tensor) -> tuple[slice, ...]:
    """Computes the slices of the whole weight that this rank holds."""
    shape = shape_of(weight)
    if not isinstance(weight, DTensor):
        return tuple(slice(0, size) for size in shape)
    sizes, starts = compute_local_shape_and_global_offset(shape, weight.device_mesh, weight.placements)
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _stored(directory: Path, model: Any, files: ExitStack) -> dict[str, Any]:
    """Maps the name of a weight to the place in an open file where it is stored."""
    from safetensors import safe_open
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    expected = {unadapted(name): weight for name, weight in model.state_dict().items() if not is_adapter(name)}
    places = weights_of(directory)
    opened = {path: files.enter_context(safe_open(path, framework="pt")) for path in {*places.values()}}
    found = {}
    for key, path in places.items():
        name, _ = rename_source_key(key, renamings, converters, model.base_model_prefix, expected)
        found[name] = opened[path].get_slice(key)
    return found
