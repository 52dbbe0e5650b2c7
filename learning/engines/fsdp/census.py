"""The sizes of a model, counted on the model itself, as the memory model wants them (`learning.planning.memory`)."""

from pathlib import Path
from typing import Any

from torch import nn

from learning.engines.fsdp.adapters import add_adapters, is_adapter
from learning.engines.fsdp.costs import Shape, shape_of
from learning.engines.fsdp.loading import model_of_config
from learning.planning.memory import Network, Stack
from schemas.config.training import LoraConfig
from schemas.failure import CheckpointError


def network_of(model: Any) -> Network:
    """The sizes of a model, with or without numbers; adapters that are in it are counted.

    Raises:
        CheckpointError: its config does not say what they are.
    """
    text, vision, core = model.config.get_text_config(), model.config.vision_config, model.base_model
    language, tower = _blocks(core.language_model), _blocks(core.visual)
    try:
        heads = text.num_attention_heads
        head = getattr(text, "head_dim", None) or text.hidden_size // heads
        keys = getattr(text, "num_key_value_heads", None) or heads
        experts = getattr(text, "num_experts", 0) or getattr(text, "num_local_experts", 0) or 0
        inner = text.moe_intermediate_size if experts else text.intermediate_size
        names = {name for name, _ in language[0].named_parameters()}
        spoken = Stack(
            blocks=len(language),
            weights=_most(language, adapters=False),
            adapted=_most(language, adapters=True),
            width=text.hidden_size,
            inner=inner,
            queries=heads * head,
            keys=keys * head,
            normed=any("q_norm" in name for name in names),
            experts=text.num_experts_per_tok if experts else 0,
        )
        named = {name for name, _ in tower[0].named_parameters()}
        seen = Stack(
            blocks=len(tower),
            weights=_most(tower, adapters=False),
            adapted=_most(tower, adapters=True),
            width=vision.hidden_size,
            inner=vision.intermediate_size,
            queries=vision.hidden_size,
            keys=vision.hidden_size,
            square=not any("norm1.bias" in name for name in named),
            gated=any("gate_proj" in name for name in named),
            fused=True,
        )
        merge = vision.spatial_merge_size**2
    except AttributeError as error:
        raise CheckpointError(f"config.json: {error}.", "What this model takes cannot be told.") from error
    inside = {id(one) for block in (*language, *tower) for one in block.parameters()}
    outside = sum(one.numel() for one in model.parameters() if id(one) not in inside)
    return Network(
        language=spoken,
        vision=seen,
        outside=outside,
        outside_vision=sum(one.numel() for one in core.visual.parameters() if id(one) not in inside),
        head=model.get_output_embeddings().weight.numel(),
        vocabulary=text.vocab_size,
        merge=merge,
        mergers=1 + len(getattr(vision, "deepstack_visual_indexes", None) or ()),
    )


def sizes_at(directory: Path, lora: LoraConfig) -> tuple[Network, Shape]:
    """The sizes of a directory's model with these adapters, and its operations; only `config.json` is read.

    Raises:
        CheckpointError: there is no `config.json`, or not of a model that can be trained.
        UsageError: it has none of the layers that are to get adapters.
    """
    model = model_of_config(directory)
    shape = shape_of(model)
    add_adapters(model, lora, 0)
    return network_of(model), shape


def _blocks(module: nn.Module) -> list[nn.Module]:
    """Those that are sharded each for itself."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [one for one in module.modules() if isinstance(one, GradientCheckpointingLayer)]


def _most(blocks: list[nn.Module], adapters: bool) -> int:
    """Weights, or those of adapters, of the largest block."""
    named = (block.named_parameters() for block in blocks)
    return max(sum(one.numel() for name, one in part if is_adapter(name) == adapters) for part in named)
