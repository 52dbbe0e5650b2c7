"""Exports a training checkpoint's weights, with its parent's other files, as a plain `transformers` directory.

A checkpoint names weights by the model's modules; files of weights may use other names, and adapters are stored
separately. So the parent's class writes the directory, as at the end of a training.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.atomic_folder import atomic_folder
from learning.checkpoint import ObjectStore, read_manifest, read_tensors
from learning.checkpoint.manifest import Manifest, folder_of
from learning.engines.fsdp.adapters import add_adapters, is_adapter, merged
from learning.engines.fsdp.model import SHARD, write_model
from learning.master_weights import WEIGHTS, master_weights_of
from models.safe import SAFE, read_whole
from models.tiny.layout import OWN
from schemas.config.training import LoraConfig
from schemas.failure import CheckpointError, UsageError

_WEIGHT_FILES = (*OWN, "pytorch_model*", "*.distcp")
_HINT = "Name the parent it was trained from."


@dataclass(frozen=True, slots=True)
class Exported:
    """Summary of an export."""

    step: int
    directory: str
    tensors: int
    files: int


def export(
    store: ObjectStore, parent: Path, to: Path, step: int | None = None, prefix: str = "model.", most: int = SHARD
) -> Exported:
    """Writes a directory with merged adapters that plain `transformers` loads; it appears whole or not at all.

    Args:
        store: store of the checkpoint.
        parent: the Hugging Face directory from which the training began. Its other files are copied, its config defines
            the names of weights, and adapters are merged into its weights.
        to: a new or empty folder.
        step: step of the checkpoint; the last one if not given.
        prefix: prefix of the weights' names in the checkpoint, before the names of modules.
        most: maximum bytes of a file.

    Raises:
        UsageError: `to` is not empty, or `parent` is no Hugging Face directory.
        CheckpointError: the checkpoint has no weights with this prefix, has another architecture than the parent, or is
    damaged.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"`--to`: {to} is not an empty folder.", "Name a new one; nothing is overwritten.")
    if not (parent / "config.json").is_file():
        raise UsageError(f"`--parent`: {parent} has no config.json.", "Name the directory the training began from.")
    manifest = read_manifest(store, step)
    where = store.path(folder_of(manifest.step))
    names = {name.removeprefix(prefix): name for name in manifest.tensors if name.startswith(prefix)}
    if not names:
        begin = ", ".join(sorted({f"`{name.split('.')[0]}.`" for name in manifest.tensors})[:8])
        raise CheckpointError(f"{where} has no tensor whose name begins with `{prefix}`.", f"Names begin with {begin}.")
    adapted = any(map(is_adapter, names))
    model = _model(parent, weights=adapted)
    if adapted:
        _take_up(model, parent)
        add_adapters(model, _lora(manifest, where), seed=0)
    expected = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    expected = {name: shape for name, shape in expected.items() if is_adapter(name) or not adapted}
    _check({name: manifest.tensors[full].shape for name, full in names.items()}, expected, where, parent)
    read = ((name.removeprefix(prefix), tensor) for name, tensor in read_tensors(store, manifest, names.values()))
    state = _merged(model, dict(read)) if adapted else dict(read)
    with atomic_folder(to) as whole:
        shutil.copytree(parent, whole, ignore=shutil.ignore_patterns(*_WEIGHT_FILES))
        dtype = model.config.dtype or torch.bfloat16
        write_model(model, {name: tensor.to(dtype) for name, tensor in state.items()}, whole, most)
        files = len(list(whole.glob("*.safetensors")))
    return Exported(manifest.step, str(to.absolute()), len(names), files)


def _model(parent: Path, weights: bool) -> Any:
    """Makes the parent's model with its weights in fp32, or with names and shapes only."""
    import transformers

    try:
        config: Any = transformers.AutoConfig.from_pretrained(parent, **SAFE)
        (architecture,) = config.architectures
        kind: Any = getattr(transformers, architecture)
        if weights:
            model = read_whole(kind, parent, dtype=torch.float32)
        else:
            with torch.device("meta"):
                model = kind(config)
    except CheckpointError:
        raise
    except Exception as error:  # the library raises many types for a faulty directory
        raise CheckpointError(f"{parent}: {error}.", "Name a directory that transformers loads.") from error
    model.config.dtype = config.dtype
    return model


def _take_up(model: Any, parent: Path) -> None:
    """Loads the base weights that the adapters were trained on."""
    with master_weights_of(parent) as checkpoints:
        if checkpoints is not None:
            checkpoints.load({f"{WEIGHTS}{name}": weight for name, weight in model.named_parameters()}, partial=True)


def _lora(manifest: Manifest, where: str) -> LoraConfig:
    if "lora" not in manifest.extra:
        raise CheckpointError(f"{where} has no scale of its adapters.", "Go on with its training instead.")
    return LoraConfig.model_validate(manifest.extra["lora"])


@torch.no_grad()
def _merged(model: Any, adapters: dict[str, Tensor]) -> dict[str, Tensor]:
    model.load_state_dict(adapters, strict=False)
    return {name: full.detach() for name, full in merged(model)}


def _check(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]], where: str, parent: Path) -> None:
    for name in sorted(found.keys() ^ expected.keys()):
        has, lacks = (where, parent) if name in found else (parent, where)
        raise CheckpointError(f"{has} has the weight `{name}` and {lacks} has not.", _HINT)
    for name, shape in found.items():
        if shape != expected[name]:
            raise CheckpointError(f"`{name}` is {shape} in {where} and {expected[name]} in {parent}.", _HINT)
