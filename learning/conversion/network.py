"""Compares weights that become a Hugging Face directory with the network of its config.

transformers initialises a missing or misnamed weight at random, with a warning only, so a conversion refuses it.
The network is made on torch's meta device, without memory for weights.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learning.checkpoint.state import Shape
from learning.conversion.hugging_face import config_of, open_hugging_face
from learning.conversion.source import WEIGHT
from learning.conversion.stored import StoredTensor
from models.safe import SAFE
from schemas.failure import CheckpointError

_HINT = "Name the parent of the network that was trained, or `--prefix`; else save the checkpoint again, whole."


@dataclass(frozen=True, slots=True)
class _Expected:
    """Weights of a network by name."""

    shapes: Mapping[str, Shape]
    """Shapes of the weights that must be there."""
    optional: Mapping[str, Shape]
    """Shapes of tied weights, which may be there."""
    ignored: tuple[str, ...] = ()
    """Regular expressions of names that the network's class does not load."""
    name_of: Callable[[str], str] = str
    """Maps a stored name to the name in `shapes`."""


def check_weights(tensors: Mapping[str, StoredTensor], parent: Path, place: Path) -> list[str]:
    """Compares names and shapes of weights with the network of a Hugging Face directory.

    Args:
        tensors: weights by the names that are written.
        parent: directory with the network's `config.json`, and perhaps its weights.
        place: folder of the checkpoint, for errors.

    Returns:
        A note if the network is not known, so that nothing was compared.

    Raises:
        CheckpointError: a weight is missing, has another shape, or is not the network's.
    """
    expected = _expected_of(parent, tensors, place)
    if expected is None:
        return [
            f"names and shapes were not compared: transformers does not know the network of {parent / 'config.json'}"
        ]
    found = {expected.name_of(name): name for name in tensors}
    known = {**expected.optional, **expected.shapes}
    lacking = sorted(expected.shapes.keys() - found.keys())
    foreign = sorted(found[name] for name in found.keys() - known.keys() if not _matches(name, expected.ignored))
    if lacking:
        instead = f" It has `{foreign[0]}`, which the network has not." if foreign else ""
        problem = f"{place} has no weight `{lacking[0]}` {expected.shapes[lacking[0]]}{_others(lacking)} of the network"
        raise CheckpointError(f"{problem} in {parent}.{instead}", _HINT)
    if foreign:
        shape = tensors[foreign[0]].shape
        problem = (
            f"{place} has the weight `{foreign[0]}` {shape}{_others(foreign)}, which the network in {parent} has not."
        )
        raise CheckpointError(problem, _HINT)
    for name, stored in found.items():
        if name in known and tensors[stored].shape != known[name]:
            problem = f"`{stored}` is {tensors[stored].shape} in {place} and {known[name]} in the network of {parent}."
            raise CheckpointError(problem, _HINT)
    return []


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _expected_of(parent: Path, tensors: Mapping[str, StoredTensor], place: Path) -> _Expected | None:
    """Returns the weights of transformers' network, else those of the parent's files; None if neither is known."""
    if (network := _empty(parent)) is not None:
        return _of_network(network, tensors)
    source = open_hugging_face(parent) if parent != place else None  # a directory always agrees with itself
    if source is None:
        return None
    shapes = {name: tensor.shape for name, tensor in source.of_kind(WEIGHT).items()}
    tied = {name for name in shapes if name.endswith("lm_head.weight") and config_of(parent).get("tie_word_embeddings")}
    required = {name: shape for name, shape in shapes.items() if name not in tied}
    return _Expected(required, {name: shapes[name] for name in tied})


def _empty(parent: Path) -> Any:
    """Makes the network without weights; None if transformers does not know it, or stores it quantized."""
    import transformers
    from accelerate import init_empty_weights

    try:
        config: Any = transformers.AutoConfig.from_pretrained(parent, **SAFE)
    except (OSError, ValueError, KeyError):  # transformers' errors for a type that it does not know
        return None
    if getattr(config, "quantization_config", None):
        return None
    autos = (transformers.AutoModelForImageTextToText, transformers.AutoModelForCausalLM, transformers.AutoModel)
    found = [getattr(transformers, name, None) for name in config.architectures or ()]
    kinds = [*found, *(auto._model_mapping.get(type(config), None) for auto in autos)]
    kind: Any = next((one for one in kinds if isinstance(one, type)), None)
    if kind is None:
        return None
    try:
        with init_empty_weights(include_buffers=False):
            network = kind(config)
        network.tie_weights()
    except Exception as error:  # the library raises many types for a faulty config
        raise CheckpointError(
            f"{parent / 'config.json'}: {error}.", "Name a directory that transformers loads."
        ) from error
    return network


def _of_network(network: Any, tensors: Mapping[str, StoredTensor]) -> _Expected:
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming, rename_source_key, revert_weight_conversion

    state = network.state_dict()
    renamings = [rule for rule in get_model_conversion_mapping(network) if isinstance(rule, WeightRenaming)]

    def name_of(stored: str) -> str:
        return rename_source_key(stored, renamings, [], network.base_model_prefix, state)[0]

    def stored(names: Mapping[str, Any]) -> dict[str, Shape]:
        """Returns shapes as files have them, for which fused weights such as experts are split."""
        return {name_of(name): tuple(one.shape) for name, one in revert_weight_conversion(network, dict(names)).items()}

    tied = network.all_tied_weights_keys.keys() & state.keys()
    fused = {name: one for name, one in state.items() if name in tensors and name not in tied}
    split = {name: one for name, one in state.items() if name not in fused and name not in tied}
    shapes = {**stored(split), **{name: tuple(one.shape) for name, one in fused.items()}}
    ignored = tuple(getattr(network, "_keys_to_ignore_on_load_unexpected", None) or ())
    return _Expected(shapes, {name: tuple(state[name].shape) for name in tied}, ignored, name_of)
