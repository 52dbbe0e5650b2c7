"""Builds the untrained default policy: a small Qwen3-VL in the layout that plain `transformers` loads.

Several choices make learning on two cores possible. Screens are mostly white, so white is 0 to the network (mean 1,
deviation 0.2). Weights start at 1/sqrt(fan-in), patch filters as low cosine waves, and position tables as sines and
cosines. Neighbouring coordinates start as neighbouring vectors. The screen is laid unscaled on a white canvas of whole
patches, so that a glyph always has the same pixels.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.tiny.tokens import END, IMAGE, PAD, START, UNKNOWN, build_tokenizer, coordinate_tokens
from schemas.config.policy import TEXT_HEAD, VISION_HEAD, PolicyConfig

MEAN, DEVIATION = 1.0, 0.2
"""Scaling of a pixel in [0, 1] to network input: (pixel - MEAN) / DEVIATION."""
GRID_SIDE = 16
"""Side of the square position table, which is resampled to the patches of the screen."""
SPREADS = (3.0, 10.0, 30.0)
"""Distances, in bins, over which coordinate tokens still resemble each other."""
TEMPLATE = (
    "{%- for message in messages -%}{%- for part in message.content if part.type == 'image' -%}"
    + IMAGE
    + "{%- endfor -%}{%- endfor -%}"
    "{%- for message in messages if message.role != 'system' -%}"
    "{%- if message.role == 'assistant' %}" + START + "{% endif -%}"
    "{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}"
    "{%- if message.role == 'assistant' %}" + END + "{% endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt %}" + START + "{% endif -%}"
)
"""Chat template: screens first, so that several questions can share an encoded screen; then instruction and past
steps."""


def build_tiny(
    config: PolicyConfig, instructions: Sequence[str], seed: int, out: Path, phrases: Sequence[str] = ()
) -> None:
    """Writes an untrained policy: `AutoModelForImageTextToText` and `AutoProcessor` load the directory.

    Args:
        config: size of the policy.
        instructions: sample texts for the tokeniser (instructions, names of elements).
        seed: draws the weights.
        out: directory to make.
        phrases: phrases of the policy's thoughts.
    """
    from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration
    from transformers.models.paddleocr_vl.processing_paddleocr_vl import PaddleOCRVLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer(instructions, config.dialect, phrases=phrases),
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        extra_special_tokens={"image_token": IMAGE},
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    images = Qwen2VLImageProcessorPil(
        patch_size=config.patch,
        temporal_patch_size=1,
        merge_size=config.merge,
        image_mean=[MEAN] * 3,
        image_std=[DEVIATION] * 3,
        size={"shortest_edge": (config.patch * config.merge) ** 2, "longest_edge": 2**24},
    )
    model: Any = Qwen3VLForConditionalGeneration(_architecture(config, tokenizer))
    generator = torch.Generator().manual_seed(seed)
    model.load_state_dict({name: _initial(name, tensor, generator) for name, tensor in model.state_dict().items()})
    table = model.get_input_embeddings().weight.data
    for number, family in enumerate(coordinate_tokens(config.dialect)):
        generator = torch.Generator().manual_seed(1000 * seed + number)
        table[tokenizer.convert_tokens_to_ids(family)] = _near_alike(len(family), table.shape[1], generator)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.bfloat16).save_pretrained(out)
    PaddleOCRVLProcessor(images, tokenizer, chat_template=TEMPLATE).save_pretrained(out)


def _architecture(config: PolicyConfig, tokenizer: Any) -> Any:
    from transformers import Qwen3VLConfig

    quarter = TEXT_HEAD // 8
    text = {
        "vocab_size": -(-len(tokenizer) // 16) * 16,
        "hidden_size": config.hidden,
        "intermediate_size": 3 * config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.hidden // TEXT_HEAD,
        "num_key_value_heads": config.hidden // TEXT_HEAD,
        "head_dim": TEXT_HEAD,
        "max_position_embeddings": 4096,
        "pad_token_id": tokenizer.pad_token_id,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [TEXT_HEAD // 2 - 2 * quarter, quarter, quarter],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": config.vision_layers,
        "hidden_size": config.vision_hidden,
        "intermediate_size": 3 * config.vision_hidden,
        "num_heads": config.vision_hidden // VISION_HEAD,
        "hidden_act": "relu",
        "patch_size": config.patch,
        "spatial_merge_size": config.merge,
        "temporal_patch_size": 1,
        "out_hidden_size": config.hidden,
        "num_position_embeddings": GRID_SIDE**2,
        "deepstack_visual_indexes": [],
    }
    image = tokenizer.convert_tokens_to_ids(IMAGE)
    return Qwen3VLConfig(
        text_config=text, vision_config=vision, image_token_id=image, video_token_id=-1, tie_word_embeddings=True
    )


def _initial(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Draws the starting value of a weight: 1/sqrt(fan-in) for matrices, sines for positions, 1 or 0 for vectors."""
    if name.endswith("pos_embed.weight"):
        return _sine_table(*tensor.shape)
    if name.endswith("patch_embed.proj.weight"):
        return _wave_filters(len(tensor), tensor.shape[-1])
    if tensor.ndim == 1:
        return torch.zeros_like(tensor) if name.endswith("bias") else torch.ones_like(tensor)
    fan_in = tensor[0].numel()
    if "embed_tokens" in name or "lm_head" in name:
        # both names share one tensor, so both must get the same values
        generator = torch.Generator().manual_seed(generator.initial_seed())
    return torch.randn(tensor.shape, generator=generator) / math.sqrt(fan_in)


def _wave_filters(filters: int, patch: int) -> Tensor:
    """Makes low two-dimensional cosine waves over grey and two colour axes; shape (filters, 3, 1, patch, patch).

    With these filters, a glyph that moves by a pixel looks nearly the same to the network; with random filters, it
    looks different.
    """
    place = torch.arange(patch) + 0.5
    waves = torch.cos(math.pi / patch * torch.arange(patch)[:, None] * place) * math.sqrt(2 / patch)
    waves[0] /= math.sqrt(2)
    low = sorted((row * row + column * column, row, column) for row in range(patch) for column in range(patch))
    axes = torch.tensor([[1.0, 1, 1], [1, 0, -1], [-1, 2, -1]])
    axes /= axes.norm(dim=1, keepdim=True)
    colour = int(0.2 * filters)
    made = [
        axis[:, None, None] * torch.outer(waves[row], waves[column])
        for axis, count in zip(axes, (filters - 2 * colour, colour, colour), strict=True)
        for _, row, column in (low * filters)[:count]
    ]
    return torch.stack(made).unsqueeze(2)


def _near_alike(bins: int, width: int, generator: torch.Generator) -> Tensor:
    """Makes unit vectors (bins, width) with similar neighbours, so that the network generalises to nearby places.

    Random Fourier features (Rahimi and Recht, 2007): the product of two vectors is a mean of Gaussians of their
    distance.
    """
    rates = torch.cat(
        [torch.randn(width // 2, generator=generator)[at::3] / spread for at, spread in enumerate(SPREADS)]
    )
    angles = torch.arange(bins)[:, None] * rates
    turn, _ = torch.linalg.qr(torch.randn(width, width, generator=generator))
    return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(width // 2) @ turn


def _sine_table(cells: int, width: int) -> Tensor:
    """Makes sine and cosine of row and column, half of the width each; shape (cells, width) of a square grid."""
    side = math.isqrt(cells)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    rates = (math.pi / side) * side ** (torch.arange(width // 4) / (width // 4))
    waves = [wave(axis.flatten()[:, None] * rates) for axis in (rows, columns) for wave in (torch.sin, torch.cos)]
    return torch.cat(waves, dim=1)
