"""Converts screenshots to network input: lays them unscaled on a white canvas of whole patches and cuts it into
patches.

Builds the untrained default policy: a small Qwen3-VL, or Qwen2.5-VL with windows, in the layout that plain
`transformers` loads.

Several choices make learning on two cores possible. Screens are mostly white, so white is 0 to the network (mean 1,
deviation 0.2). Weights start at 1/sqrt(fan-in), patch filters as low cosine waves, and position tables as sines and
cosines. Neighbouring coordinates start as neighbouring vectors. The screen is laid unscaled on a white canvas of whole
patches, so that a glyph always has the same pixels.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.picture import rgb_of
from models.tiny.layout import WINDOWED
from models.tiny.network import Grid
from models.tiny.tokens import END, IMAGE, PAD, START, UNKNOWN, WORDS, build_tokenizer, coordinate_tokens
from schemas.config.policy import TEXT_HEAD, VISION_HEAD, WINDOW_HEAD, PolicyConfig

Pixels = np.ndarray
"""One screenshot, (height, width, 3), uint8."""
HELD_BYTES = 16 * 2**20
"""Maximum bytes of decoded screenshots per process: 165 pages of MiniWoB++. Decoding takes 0.4 ms per page."""


def pixels_of(png: bytes) -> Pixels:
    """Decodes a screenshot.

    Raises:
        OSError: the bytes are no image.
    """
    return np.asarray(rgb_of(png))


class PixelCache:
    """Cache of decoded screenshots by their sha256, which keeps the most recently used.

    Args:
        pngs: PNG files by sha256.
        most: maximum bytes of all screenshots together; a single one may take more.
    """

    def __init__(self, pngs: Mapping[str, bytes], most: int = HELD_BYTES) -> None:
        self._pngs, self._most, self._bytes = pngs, most, 0
        self._held: OrderedDict[str, Pixels] = OrderedDict()

    def __call__(self, digest: str) -> Pixels:
        """Returns a screenshot's pixels; raises KeyError for an unknown screenshot."""
        if digest not in self._held:
            self._held[digest] = pixels_of(self._pngs[digest])
            self._bytes += self._held[digest].nbytes
        self._held.move_to_end(digest)
        while self._bytes > self._most and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes
        return self._held[digest]


def grid_of(height: int, width: int, patch: int, merge: int) -> Grid:
    """Finds the smallest canvas, in patches, that holds a screen of this size in pixels."""
    block = patch * merge
    return Grid(-(-height // block) * merge, -(-width // block) * merge)


def canvas_of(pixels: Pixels, grid: Grid, patch: int, down: int = 0, right: int = 0) -> Pixels:
    """Lays the screen on a white canvas, moved by `down` and `right` pixels (negative: up and left)."""
    canvas = np.full((grid.rows * patch, grid.columns * patch, 3), 255, dtype=np.uint8)
    height = min(pixels.shape[0] - max(-down, 0), canvas.shape[0] - max(down, 0))
    width = min(pixels.shape[1] - max(-right, 0), canvas.shape[1] - max(right, 0))
    from_top, from_left = max(-down, 0), max(-right, 0)
    to_top, to_left = max(down, 0), max(right, 0)
    shown = pixels[from_top : from_top + height, from_left : from_left + width]
    canvas[to_top : to_top + height, to_left : to_left + width] = shown
    return canvas


def patches_of(canvases: list[Pixels], patch: int, merge: int, dtype: torch.dtype) -> Tensor:
    """Cuts canvases of one size into (B, patches, 3 * patch ** 2): blocks of merge x merge, white as 0."""
    stack = np.stack(canvases)
    batch, height, width, _ = stack.shape
    block = patch * merge
    cut = stack.reshape(batch, height // block, merge, patch, width // block, merge, patch, 3)
    cut = cut.transpose(0, 1, 4, 2, 5, 7, 3, 6).reshape(batch, -1, 3 * patch * patch)
    return torch.from_numpy(cut).to(dtype).sub_(255 * MEAN).mul_(1 / (255 * DEVIATION))


MEAN, DEVIATION = 1.0, 0.2
"""Scaling of a pixel in [0, 1] to network input: (pixel - MEAN) / DEVIATION."""
WAVES = 8
"""Smallest side of a patch in pixels whose filters start as waves; a smaller patch has too few pixels for them."""
WINDOW_THETA = 50.0
"""Rotary base of a tower whose patches attend within windows."""
GRID_SIDE = 16
"""Side of the square position table, which is resampled to the patches of the screen."""
SPREADS = (3.0, 10.0, 30.0)
"""Distances, in bins, over which coordinate tokens still resemble each other."""
TEMPLATE = (
    "{%- for message in messages -%}{%- for part in message.content if part.type == 'image' -%}SCREEN{%- endfor -%}"
    "{%- endfor -%}{%- for message in messages if message.role != 'system' -%}"
    "{%- if message.role == 'assistant' %}" + START + "{% endif -%}"
    "{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}"
    "{%- if message.role == 'assistant' %}" + END + "{% endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt %}" + START + "{% endif -%}"
)
"""Chat template: screens first, so that several questions can share an encoded screen; then instruction and past
steps. `SCREEN` is replaced by the tokens of a screen."""


def build_tiny(
    config: PolicyConfig,
    instructions: Sequence[str],
    seed: int,
    out: Path,
    phrases: Sequence[str] = (),
    words: int = WORDS,
) -> None:
    """Writes an untrained policy: `AutoModelForImageTextToText` and `AutoProcessor` load the directory.

    Args:
        config: size of the policy.
        instructions: sample texts for the tokeniser (instructions, names of elements).
        seed: draws the weights.
        out: directory to make.
        phrases: phrases of the policy's thoughts.
        words: maximum number of words that the tokeniser learns from the sample texts, and of phrases.
    """
    from transformers import AutoModelForImageTextToText, PreTrainedTokenizerFast
    from transformers.models.paddleocr_vl.processing_paddleocr_vl import PaddleOCRVLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer(instructions, config.dialect, words, phrases),
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
    model: Any = AutoModelForImageTextToText.from_config(_architecture(config, tokenizer))
    generator = torch.Generator().manual_seed(seed)
    model.load_state_dict({name: _initial(name, tensor, generator) for name, tensor in model.state_dict().items()})
    table = model.get_input_embeddings().weight.data
    for number, family in enumerate(coordinate_tokens(config.dialect)):
        generator = torch.Generator().manual_seed(1000 * seed + number)
        table[tokenizer.convert_tokens_to_ids(family)] = _near_alike(len(family), table.shape[1], generator)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.bfloat16).save_pretrained(out)
    template = TEMPLATE.replace("SCREEN", f"{START}{IMAGE}" if config.window else IMAGE)
    PaddleOCRVLProcessor(images, tokenizer, chat_template=template).save_pretrained(out)


def sizes_of(config: PolicyConfig, vocabulary: int) -> dict[str, Any]:
    """Computes a policy's model type, and the sizes of its text stack and vision tower, as in `config.json`."""
    text = {
        "vocab_size": -(-vocabulary // 16) * 16,
        "hidden_size": config.hidden,
        "intermediate_size": 3 * config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.hidden // TEXT_HEAD,
        "num_key_value_heads": config.hidden // TEXT_HEAD,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
    }
    vision = {
        "depth": config.vision_layers,
        "hidden_size": config.vision_hidden,
        "in_channels": 3,
        "patch_size": config.patch,
        "spatial_merge_size": config.merge,
        "temporal_patch_size": 1,
        "out_hidden_size": config.hidden,
    }
    if config.window:
        vision |= {
            "intermediate_size": 2 * config.vision_hidden,
            "num_heads": config.vision_hidden // WINDOW_HEAD,
            "hidden_act": "silu",
            "window_size": config.window,
            "fullatt_block_indexes": [],
            # a window is a few patches wide, over which slower frequencies hardly turn
            "rope_parameters": {"rope_type": "axial", "rope_theta": WINDOW_THETA},
        }
        return {"model_type": WINDOWED, "text_config": text, "vision_config": vision}
    vision |= {
        "intermediate_size": 3 * config.vision_hidden,
        "num_heads": config.vision_hidden // VISION_HEAD,
        "hidden_act": "relu",
        "num_position_embeddings": GRID_SIDE**2,
        "deepstack_visual_indexes": [],
    }
    return {"model_type": "qwen3_vl", "text_config": {**text, "head_dim": TEXT_HEAD}, "vision_config": vision}


def _architecture(config: PolicyConfig, tokenizer: Any) -> Any:
    from transformers import AutoConfig

    each, half = TEXT_HEAD // 8, TEXT_HEAD // 2
    sizes = sizes_of(config, len(tokenizer))
    sizes["text_config"] |= {
        **{f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")},
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            # a Qwen2.5-VL has no other way to take the axes in turn, and in blocks its columns would turn too slowly
            **(
                {"mrope_section": [*[1] * (3 * each), half - 3 * each, 0, 0]}
                if config.window
                else {"mrope_section": [half - 2 * each, each, each], "mrope_interleaved": True}
            ),
        },
    }
    special = {"image_token_id": tokenizer.convert_tokens_to_ids(IMAGE), "video_token_id": -1}
    if config.window:
        special["vision_start_token_id"] = tokenizer.convert_tokens_to_ids(START)
    return AutoConfig.for_model(**sizes, **special, tie_word_embeddings=True)


def _initial(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Draws the starting value of a weight: 1/sqrt(fan-in) for matrices, sines for positions, 1 or 0 for vectors."""
    if name.endswith("pos_embed.weight"):
        return _sine_table(*tensor.shape)
    if name.endswith("patch_embed.proj.weight") and tensor.shape[-1] >= WAVES:
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
