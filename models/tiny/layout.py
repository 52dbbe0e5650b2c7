"""Describes the layout of the small policy's checkpoint: its architecture, and its tensors by the network's leaves.

The module imports no `torch`, so that a checkpoint's kind can be read quickly.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.safe import PICKLES
from models.weights import ADAPTER
from schemas.failure import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

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
ACTIVATIONS = ("gelu_pytorch_tanh", "gelu", "relu", "silu")
"""Supported activations of the vision tower."""


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
    """Checks whether a `config.json` has the architecture that `models.tiny.network` runs."""
    text, vision = config.get("text_config", {}), config.get("vision_config", {})
    return (
        config.get("model_type") == "qwen3_vl"
        and bool(config.get("tie_word_embeddings"))
        and text.get("num_key_value_heads") == text.get("num_attention_heads")
        and vision.get("temporal_patch_size") == 1
        and not vision.get("deepstack_visual_indexes")
        and vision.get("hidden_act") in ACTIVATIONS
    )


def check_architecture(config: dict[str, Any]) -> None:
    """Raises `CheckpointError` unless `is_tiny`."""
    if not is_tiny(config):
        raise CheckpointError(
            f"config.json: a {config.get('model_type')!r} model is not the small Qwen3-VL.",
            "Set policy.base to a directory that the default policy was written to.",
        )


def parts_of(config: dict[str, Any]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Lists for each leaf its tensors, with their shapes."""
    text, vision = config["text_config"], config["vision_config"]
    d, ff, inner = text["hidden_size"], text["intermediate_size"], text["num_attention_heads"] * text["head_dim"]
    v, vff, merged = (
        vision["hidden_size"],
        vision["intermediate_size"],
        vision["hidden_size"] * vision["spatial_merge_size"] ** 2,
    )
    patch = vision["patch_size"]
    parts: dict[str, dict[str, tuple[int, ...]]] = {}

    def add(name: str, *shape: int, of: tuple[str, ...] = ()) -> None:
        stem = name.removesuffix(".weight").rsplit(".", 1)[0]
        parts[name] = {f"{stem}.{part}.weight": shape for part in of} if of else {name: shape}

    def add_affine(name: str, *shape: int) -> None:
        add(f"{name}.weight", *shape)
        add(f"{name}.bias", shape[0])

    add_affine(f"{VISION}patch_embed.proj", v, vision["in_channels"], 1, patch, patch)
    add(f"{VISION}pos_embed.weight", vision["num_position_embeddings"], v)
    for layer in range(vision["depth"]):
        at = f"{VISION}blocks.{layer}."
        for name, shape in {
            "norm1": (v,), "norm2": (v,), "attn.qkv": (3 * v, v), "attn.proj": (v, v),
            "mlp.linear_fc1": (vff, v), "mlp.linear_fc2": (v, vff),
        }.items():  # fmt: skip
            add_affine(at + name, *shape)
    for name, shape in {"norm": (v,), "linear_fc1": (merged, merged), "linear_fc2": (d, merged)}.items():
        add_affine(f"{VISION}merger.{name}", *shape)
    add(f"{TEXT}embed_tokens.weight", text["vocab_size"], d)
    for layer in range(text["num_hidden_layers"]):
        at = f"{TEXT}layers.{layer}."
        add(f"{at}{ATTENTION}qkv.weight", inner, d, of=FUSED["qkv"])
        add(f"{at}{ATTENTION}o_proj.weight", d, inner)
        add(f"{at}{MLP}gate_up.weight", ff, d, of=FUSED["gate_up"])
        add(f"{at}{MLP}down_proj.weight", d, ff)
        for name, width in {
            "input_layernorm": d, "post_attention_layernorm": d,
            f"{ATTENTION}q_norm": text["head_dim"], f"{ATTENTION}k_norm": text["head_dim"],
        }.items():  # fmt: skip
            add(f"{at}{name}.weight", width)
    add(f"{TEXT}norm.weight", d)
    return parts


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
