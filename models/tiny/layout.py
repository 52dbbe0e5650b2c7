"""Describes the layout of the small policy's checkpoint: its architecture, and its tensors by the network's leaves.

The module imports no `torch`, so that a checkpoint's kind can be read quickly.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from models.safe import PICKLES
from models.weights import ADAPTER
from schemas.failure import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
CRITIC = "critic.safetensors"
"""File of a critic, in the folder of the weights: `transformers` reads no such file."""
TRAINING = "training"
"""Folder that only the next training reads (`learning.master_weights`); `transformers` does not read it."""
RESULT = "trained.json"
"""File of the final loss and numbers of the training that made a checkpoint."""
OWN = (
    "*.safetensors",
    "*.safetensors.index.json",
    *(f"*{kind}" for kind in PICKLES),
    "job.json",
    RESULT,
    TRAINING,
    ADAPTER,
    "README.md",
)
"""Files that belong to a single checkpoint; a child checkpoint copies all other files."""
VISION, TEXT = "model.visual.", "model.language_model."
FUSED = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}
ATTENTION, MLP = "self_attn.", "mlp."
MERGERS = {"qwen3_vl": ("norm", "linear_fc1", "linear_fc2"), "qwen2_5_vl": ("ln_q", "mlp.0", "mlp.2")}
"""Names of the merger's norm and matrices, by model type."""
ACTIVATIONS = ("gelu_pytorch_tanh", "gelu", "relu", "silu")
"""Supported activations of the vision tower."""
WINDOWED = "qwen2_5_vl"
"""Model type of a small policy whose patches attend within windows."""


def read_config(directory: Path) -> dict[str, Any]:
    """Reads a checkpoint's `config.json`; raises `CheckpointError` if it is missing or no JSON object."""
    try:
        config = json.loads((directory / "config.json").read_text())
    except json.JSONDecodeError as error:
        hint = "Save it without the byte order mark." if "BOM" in error.msg else "Fetch or save that file again."
        raise CheckpointError(f"{directory}/config.json: {error}.", hint) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{directory}/config.json: {error}.", "Name a directory that a training wrote."
        ) from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{directory}/config.json: no JSON object.", "The checkpoint is broken.")
    return config


def is_tiny(config: dict[str, Any]) -> bool:
    """Checks whether a `config.json` has an architecture that `models.tiny.network` runs: a small Qwen3-VL, or a small
    Qwen2.5-VL whose patches attend within windows only."""
    text, vision = config.get("text_config", {}), config.get("vision_config", {})
    plain = config.get("model_type") == "qwen3_vl" and not vision.get("deepstack_visual_indexes")
    return (
        (plain or is_windowed(config))
        and bool(config.get("tie_word_embeddings"))
        and text.get("num_key_value_heads") == text.get("num_attention_heads")
        and vision.get("temporal_patch_size") == 1
        and vision.get("hidden_act") in ACTIVATIONS
    )


def is_windowed(config: dict[str, Any]) -> bool:
    """Checks whether the patches of a Qwen2.5-VL attend within windows of whole image tokens, in every layer."""
    vision = config.get("vision_config", {})
    sizes = [vision.get(name) for name in ("window_size", "patch_size", "spatial_merge_size")]
    if config.get("model_type") != WINDOWED or vision.get("fullatt_block_indexes") != []:
        return False
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return False
    window, patch, merge = sizes
    return window >= patch * merge


def sizes_in(config: dict[str, Any]) -> dict[str, int]:
    """Returns the sizes of a small policy by the keys of the section `policy`."""
    text, vision = config["text_config"], config["vision_config"]
    return {
        "hidden": text["hidden_size"],
        "layers": text["num_hidden_layers"],
        "vision_hidden": vision["hidden_size"],
        "vision_layers": vision["depth"],
        "patch": vision["patch_size"],
        "merge": vision["spatial_merge_size"],
        "window": vision["window_size"] if is_windowed(config) else 0,
    }


def head_width(text: dict[str, Any]) -> int:
    """Returns the width of an attention head of the text stack."""
    return text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]


def start_tokens(config: dict[str, Any]) -> list[int]:
    """Lists the ids of the text tokens before each screen. From one, tokens of a screen learn where on the screen they
    are, if the vision tower does not tell them.

    Raises:
        CheckpointError: a policy whose patches attend within windows has no start token.
    """
    if not is_windowed(config):
        return []
    start = config.get("vision_start_token_id")
    if type(start) is not int or not 0 <= start < config["text_config"]["vocab_size"]:
        raise CheckpointError(
            f"config.json: vision_start_token_id is {start}, so no token stands before a screen, as in the first bases "
            "with windows.",
            "Train the base again: `flywheel pretrain train`.",
        )
    return [start]


def check_architecture(config: dict[str, Any]) -> None:
    """Raises `CheckpointError` unless `is_tiny`."""
    if not is_tiny(config):
        raise CheckpointError(
            f"config.json: a {config.get('model_type')!r} model is not the small Qwen3-VL or Qwen2.5-VL.",
            "Set policy.base to a directory that the default policy was written to.",
        )


def parts_of(config: dict[str, Any]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Lists for each leaf its tensors, with their shapes."""
    text, vision = config["text_config"], config["vision_config"]
    d, ff, head = text["hidden_size"], text["intermediate_size"], head_width(text)
    inner = text["num_attention_heads"] * head
    v, vff, merged = (
        vision["hidden_size"],
        vision["intermediate_size"],
        vision["hidden_size"] * vision["spatial_merge_size"] ** 2,
    )
    patch, windowed = vision["patch_size"], is_windowed(config)
    parts: dict[str, dict[str, tuple[int, ...]]] = {}

    def add(name: str, *shape: int) -> None:
        place, kind = name.rsplit(".", 1)
        stem, _, last = place.rpartition(".")
        parts[name] = {f"{stem}.{part}.{kind}": shape for part in FUSED.get(last, ())} or {name: shape}

    def add_affine(name: str, *shape: int) -> None:
        add(f"{name}.weight", *shape)
        add(f"{name}.bias", shape[0])

    # layer norms of Qwen3-VL's tower have biases, RMS norms have none
    add_norm = add if windowed else lambda name, width: add_affine(name.removesuffix(".weight"), width)
    add(f"{VISION}patch_embed.proj.weight", v, vision["in_channels"], 1, patch, patch)
    if not windowed:
        add(f"{VISION}patch_embed.proj.bias", v)
        add(f"{VISION}pos_embed.weight", vision["num_position_embeddings"], v)
    for layer in range(vision["depth"]):
        at = f"{VISION}blocks.{layer}."
        add_norm(f"{at}norm1.weight", v)
        add_norm(f"{at}norm2.weight", v)
        # the file has one tensor for these three matrices
        parts[f"{at}attn.qkv.weight"] = {f"{at}attn.qkv.weight": (3 * v, v)}
        parts[f"{at}attn.qkv.bias"] = {f"{at}attn.qkv.bias": (3 * v,)}
        add_affine(f"{at}attn.proj", v, v)
        add_affine(f"{at}mlp.{'gate_up' if windowed else 'linear_fc1'}", vff, v)
        add_affine(f"{at}mlp.{'down_proj' if windowed else 'linear_fc2'}", v, vff)
    norm, first, second = MERGERS[config["model_type"]]
    add_norm(f"{VISION}merger.{norm}.weight", v)
    add_affine(f"{VISION}merger.{first}", merged, merged)
    add_affine(f"{VISION}merger.{second}", d, merged)
    add(f"{TEXT}embed_tokens.weight", text["vocab_size"], d)
    for layer in range(text["num_hidden_layers"]):
        at = f"{TEXT}layers.{layer}."
        add(f"{at}{ATTENTION}qkv.weight", inner, d)
        add(f"{at}{ATTENTION}o_proj.weight", d, inner)
        add(f"{at}{MLP}gate_up.weight", ff, d)
        add(f"{at}{MLP}down_proj.weight", d, ff)
        add(f"{at}input_layernorm.weight", d)
        add(f"{at}post_attention_layernorm.weight", d)
        if windowed:
            add(f"{at}{ATTENTION}qkv.bias", inner)
        else:
            add(f"{at}{ATTENTION}q_norm.weight", head)
            add(f"{at}{ATTENTION}k_norm.weight", head)
    add(f"{TEXT}norm.weight", d)
    return {name: stored(config, found) for name, found in parts.items()}


def stored(config: dict[str, Any], tensors: Mapping[str, T]) -> dict[str, T]:
    """Names tensors as `transformers` writes them to a file, which for a Qwen2.5-VL are the names of its first
    release."""
    if not is_windowed(config):
        return dict(tensors)
    return {name.replace(VISION, "visual.").replace(TEXT, "model."): tensor for name, tensor in tensors.items()}


def kind_of(name: str, parts: dict[str, tuple[int, ...]]) -> int:
    """Returns 0 for a matrix, 1 for a table that is looked up, 2 for a vector."""
    return 1 if "embed_tokens" in name or "pos_embed" in name else 2 * all(len(shape) == 1 for shape in parts.values())


def check_state(parts: dict[str, dict[str, tuple[int, ...]]], state: "dict[str, Tensor]") -> None:
    """Raises `CheckpointError` for a tensor that is missing or of another shape."""
    for name, shape in (item for part in parts.values() for item in part.items()):
        if name not in state:
            raise CheckpointError(
                f"model.safetensors: no tensor {name!r}.", "The checkpoint is broken or of another shape."
            )
        if tuple(state[name].shape) != shape:
            raise CheckpointError(
                f"model.safetensors: {name!r} is {tuple(state[name].shape)}, config.json has {shape}.",
                "The checkpoint is broken or of another shape.",
            )
