"""Adds LoRA adapters (arXiv 2106.09685) by peft to a model before it is sharded, merges them, and writes them
separately.

The adapted weight is W' = W + alpha / rank B A, where A (rank, columns) and B (rows, rank) are trained. B starts as 0,
so the first step starts from the parent's weights.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from learning.engines.fsdp.nf4 import PACKED, is_packed, unpacked
from learning.engines.fsdp.shards import whole
from models.weights import write_parent
from schemas.config.training import LoraConfig
from schemas.failure import FlywheelError, UsageError

_NAME = "default"
_BASE = ".base_layer."
_ADAPTER = ".lora_"
_VISION = r"(.*\.)?(visual|vision_tower|vision_model)\..*"
"""Full names of a vision tower's modules, in all trainable families."""


def require_peft(lora: LoraConfig) -> None:
    """Raises `FlywheelError` if the config asks for adapters and peft is not installed."""
    if lora.rank and find_spec("peft") is None:
        raise FlywheelError(
            "`train.lora.rank`: adapters need the package peft, which is not installed.",
            "Run `make setup`, or `pip install -r requirements.lock`; or set train.lora.rank=0.",
        )


def add_adapters(model: Any, lora: LoraConfig, seed: int) -> None:
    """Freezes a model's weights and adds adapters to its target layers; does nothing if the rank is 0.

    `seed` makes all ranks draw the same numbers.

    Raises:
        FlywheelError: peft is not installed.
        UsageError: the model has no target layers, or a target layer whose adapter could not be merged into the written
    weights.
    """
    require_peft(lora)
    if not lora.rank:
        return
    import peft

    wanted = _config(lora)
    _require_linear(model, wanted)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            peft.inject_adapter_in_model(wanted, model)
        except ValueError as error:
            hint = "Name linear layers that the model has; train.lora.vision=true takes those of the vision tower too."
            why = str(error).partition(". ")[0].rstrip(".")
            raise UsageError(f"`train.lora.targets` ({', '.join(lora.targets)}): {why}.", hint) from error
        _require_untied(model)
        _draw(model)


def _require_linear(model: Any, wanted: Any) -> None:
    """Raises UsageError for a target that is no linear layer, since an adapter's product can be added only to a linear
    layer."""
    from peft.tuners.tuners_utils import check_target_module_exists

    for name, layer in model.named_modules():
        if not isinstance(layer, nn.Linear) and check_target_module_exists(wanted, name):
            raise UsageError(
                f"`train.lora.targets`: {name} is a {type(layer).__name__}; adapters are for linear layers.",
                f"Remove {name.rpartition('.')[2]} from train.lora.targets, or name the linear layers within.",
            )


def _require_untied(model: Any) -> None:
    """Raises UsageError for a target layer that shares its weight with another layer.

    For example, an output layer that is tied to the embeddings is written as the embeddings, without the adapter's
    product.
    """
    names: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), []).append(unadapted(name))
    for name, layer in model.named_modules():
        if not hasattr(layer, "lora_A"):
            continue
        base, target = layer.get_base_layer(), name.rpartition(".")[2]
        if others := sorted({*names[id(base.weight)]} - {f"{name}.weight"}):
            raise UsageError(
                f"`train.lora.targets`: {name} shares its weight with {others[0].removesuffix('.weight')}, so its "
                "adapter would be left out of the checkpoint.",
                f"Remove {target} from train.lora.targets, or untie the model: save it with tie_word_embeddings=false.",
            )


def write_adapters(model: Any, lora: LoraConfig, parent: Path, folder: Path, rank: int) -> None:
    """Writes only the adapters, in fp32, in the format of peft and of servers; all ranks call it.

    It writes nothing if the vision tower has adapters, since servers would ignore them without a message.

    Args:
        model: the sharded model.
        lora: the config that `add_adapters` got.
        parent: the checkpoint to which the adapters apply.
        folder: folder to make; rank 0 writes it.
    """
    from safetensors.torch import save_file

    if any(is_adapter(name) and re.fullmatch(_VISION, name) for name, _ in model.named_parameters()):
        return
    state = {}
    for name, weight in model.named_parameters():
        if is_adapter(name):
            full = whole(weight)
            if rank == 0:
                state[f"base_model.model.{name.replace(f'.{_NAME}.', '.')}"] = full.detach().cpu().contiguous()
    if rank == 0:
        folder.mkdir()
        config = _config(lora)
        config.base_model_name_or_path, config.inference_mode = str(parent.absolute()), True
        config.save_pretrained(str(folder))
        save_file(state, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        write_parent(folder, parent)


def _config(lora: LoraConfig) -> Any:
    import peft

    whole_alpha = int(lora.alpha) == lora.alpha
    return peft.LoraConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha) if whole_alpha else lora.alpha,  # type: ignore[arg-type]
        target_modules=list(lora.targets),
        exclude_modules=None if lora.vision else _VISION,
    )


def _draw(model: Any) -> None:
    """Initialises adapters of a model on the meta device, where peft creates them.

    Adapters are in fp32, whatever the type of their layers.
    """
    for layer in model.modules():
        if hasattr(layer, "reset_lora_parameters") and layer.lora_A[_NAME].weight.is_meta:
            for part in (layer.lora_A, layer.lora_B):
                part[_NAME].to(torch.float32).to_empty(device="cpu")
            layer.reset_lora_parameters(_NAME, True)


def is_adapter(name: str) -> bool:
    """Checks whether a weight of this name belongs to an adapter."""
    return _ADAPTER in name


def unadapted(name: str) -> str:
    """Converts the name of a weight to its name without adapters and 4-bit packing."""
    name = name.replace(_BASE, ".")
    return f"{name.removesuffix(PACKED)}weight" if name.endswith(f".{PACKED}") else name


def plain(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights by their names without adapters, as this rank holds them.

    Weights with adapters are not merged, and weights in 4 bits are bytes.
    """
    for name, weight in model.named_parameters():
        if not is_adapter(name):
            yield unadapted(name), weight


@torch.no_grad()
def joined(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights with adapters merged in; all ranks iterate to the end."""
    for name, weight in model.named_parameters():
        before, base, kind = name.rpartition(_BASE)
        if base and kind in ("weight", PACKED):
            layer = model.get_submodule(before)
            down, up = (whole(part[_NAME].weight) for part in (layer.lora_A, layer.lora_B))
            delta = layer.scaling[_NAME] * (up @ down)
            if isinstance(weight, DTensor):  # every rank has the whole update, and keeps its own rows
                delta = distribute_tensor(delta, weight.device_mesh, weight.placements, src_data_rank=None)
            yield unadapted(name), unpacked(weight) + delta
        elif not is_adapter(name):
            yield unadapted(name), unpacked(weight.detach())


def in_full(model: Any, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yields the merged weights in a precision; for a 4-bit model, they are on the CPU, since a GPU may lack the
    memory."""
    four = any(is_packed(weight) for weight in model.parameters())
    return ((name, weight.to("cpu" if four else weight.device, dtype)) for name, weight in joined(model))


def merged(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yields the whole merged weights by their `transformers` names; all ranks iterate to the end."""
    return ((name, whole(weight)) for name, weight in joined(model))
