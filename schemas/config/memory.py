"""The `train.memory` and `train.experts` sections of the config: precision and place of a training's data."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.config.section import Count, Section


class MemoryConfig(Section):
    """Memory of a training (docs/memory.md); not for the small policy. `flywheel plan` chooses these."""

    frozen: Literal["float32", "bfloat16", "nf4"] = "float32"
    """Precision of weights that are not trained, 4 bytes or 2 each: the base of adapters, and a frozen vision tower.
    They compute in `train.precision`. `nf4` is for training adapters (QLoRA): linear layers in the language model's
    blocks are rounded to 4 bits, 0.56 bytes, everything else is in bfloat16; the policy that is written has the rounded
    weights with the adapters in them."""
    freeze_vision: bool = False
    """Whether the vision tower, its merger included, stays as it is: it then has no gradients, moments and kept
    activations."""
    offload: bool = False
    """Whether the fp32 weights, their gradients and moments lie in the machine's memory, and the optimiser steps there;
    the GPU holds only the copies that it computes with. For a GPU, and without adapters."""
    whole_gradients: bool = False
    """Whether each process keeps the whole gradient of a step that is taken in several micro-batches, 4 bytes a trained
    weight, and shares it out after the last one instead of after each."""
    moments: Literal["float32", "8bit"] = "float32"
    """Precision of AdamW's two moments of a trained weight, 4 bytes each or 1; with `8bit` steps are rounded, so the
    result differs a little. The next training loads kept moments if it holds them in the same precision."""
    logits_chunk: Count | None = None
    """Targets whose logits are computed at a time; with more targets logits are computed again in the backward pass,
    chunk by chunk. If not set, the logits of all targets of a micro-batch are held together."""


class ExpertsConfig(Section):
    """Training of a mixture of experts (Qwen3-VL-30B-A3B and the like); not for other models."""

    parallel: bool = False
    """Whether each process holds whole experts, a share of every layer's, and is sent the tokens that ask them (expert
    parallelism), instead of gathering all of a layer's weights. The number of experts is a multiple of the processes',
    and `train.replicas` is 1."""
    balance: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the auxiliary loss that spreads tokens over experts (Switch, arXiv 2101.03961, as `transformers`
    computes it), here the mean over documents and layers, so that it does not depend on the sharing of the work. Qwen's
    `router_aux_loss_coef` is 0.001."""
