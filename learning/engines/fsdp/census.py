"""Counts the sizes of a model on the model itself, for the memory model (`learning.planning.memory`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from learning.engines.fsdp.adapters import add_adapters, is_adapter
from learning.engines.fsdp.costs import Shape, shape_of
from learning.engines.fsdp.experts import experts_of
from learning.engines.fsdp.loading import model_of_config
from learning.planning.memory import DeltaBlocks, Network, Stack
from schemas.config.training import LoraConfig
from schemas.failure import CheckpointError


def network_of(model: Any) -> Network:
    """Counts the sizes of a model, including adapters; the weights may have no memory.

    Raises:
        CheckpointError: the model's config lacks a size.
    """
    text, vision, core = model.config.get_text_config(), model.config.vision_config, model.base_model
    layers, tower = _blocks(core.language_model), _blocks(core.visual)
    inside = {id(one) for block in (*layers, *tower) for one in block.parameters()}
    try:
        return Network(
            language=_language(text, layers),
            vision=_vision(vision, tower),
            outside=sum(one.numel() for one in model.parameters() if id(one) not in inside),
            outside_vision=sum(one.numel() for one in core.visual.parameters() if id(one) not in inside),
            head=model.get_output_embeddings().weight.numel(),
            vocabulary=text.vocab_size,
            merge=vision.spatial_merge_size**2,
            mergers=1 + len(getattr(vision, "deepstack_visual_indexes", None) or ()),
        )
    except AttributeError as error:
        raise CheckpointError(f"config.json: {error}.", "The memory of this model is unknown.") from error


def _language(text: Any, layers: Sequence[nn.Module]) -> Stack:
    heads = text.num_attention_heads
    head = getattr(text, "head_dim", None) or text.hidden_size // heads
    experts = getattr(text, "num_experts", 0) or getattr(text, "num_local_experts", 0) or 0
    delta = [layer for layer in layers if hasattr(layer, "linear_attn")]
    attending = [layer for layer in layers if layer not in delta]
    return Stack(
        blocks=len(layers),
        weights=_most(attending, adapters=False),
        adapted=_most(attending, adapters=True),
        width=text.hidden_size,
        inner=text.moe_intermediate_size if experts else text.intermediate_size,
        queries=heads * head,
        keys=(getattr(text, "num_key_value_heads", None) or heads) * head,
        normed=any("q_norm" in name for name, _ in attending[0].named_parameters()),
        experts=text.num_experts_per_tok if experts else 0,
        shared=max(sum(one.numel() for held in experts_of(layer) for one in held.parameters()) for layer in layers),
        shared_expert=(getattr(text, "shared_expert_intermediate_size", None) or 0) if experts else 0,
        query_gates=bool(delta),
        delta=_delta(text, delta) if delta else None,
    )


def _delta(text: Any, layers: Sequence[nn.Module]) -> DeltaBlocks:
    heads, key, value = text.linear_num_value_heads, text.linear_key_head_dim, text.linear_value_head_dim
    return DeltaBlocks(
        blocks=len(layers),
        weights=_most(layers, adapters=False),
        adapted=_most(layers, adapters=True),
        heads=heads,
        key=key,
        value=value,
        convolved=2 * text.linear_num_key_heads * key + heads * value,
    )


def _vision(vision: Any, tower: Sequence[nn.Module]) -> Stack:
    names = {name for name, _ in tower[0].named_parameters()}
    return Stack(
        blocks=len(tower),
        weights=_most(tower, adapters=False),
        adapted=_most(tower, adapters=True),
        width=vision.hidden_size,
        inner=vision.intermediate_size,
        queries=vision.hidden_size,
        keys=vision.hidden_size,
        gated=any("gate_proj" in name for name in names),
        fused=True,
    )


def sizes_at(directory: Path, lora: LoraConfig) -> tuple[Network, Shape]:
    """Counts the sizes and operations of a directory's model with these adapters; reads only `config.json`.

    Raises:
        CheckpointError: there is no `config.json`, or its model cannot be trained.
        UsageError: the model has none of the layers for adapters.
    """
    model = model_of_config(directory)
    shape = shape_of(model)
    add_adapters(model, lora, 0)
    return network_of(model), shape


def _blocks(module: nn.Module) -> list[nn.Module]:
    """Lists the modules that are sharded individually."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [one for one in module.modules() if isinstance(one, GradientCheckpointingLayer)]


def _most(blocks: Sequence[nn.Module], adapters: bool) -> int:
    """Counts the weights of the largest block, or only the weights of its adapters."""
    named = (block.named_parameters() for block in blocks)
    return max(sum(one.numel() for name, one in part if is_adapter(name) == adapters) for part in named)
