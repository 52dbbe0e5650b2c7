"""Writes small random models of the real architectures, in directories that plain `transformers` loads.

With these models, tests check in seconds how a checkpoint of billions of weights loads, acts, trains and resumes.
Classes, processor and names of weights are the same; only the weights are random.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from models.tiny.tokens import build_tokenizer
from schemas.failure import UsageError

Kind = Literal["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"]
KINDS: tuple[str, ...] = get_args(Kind)
WINDOW = 112
"""Side in pixels of a window of Qwen2.5-VL's vision tower."""
WHOLE_EVERY = 8
"""Every eighth layer of that tower attends to whole screens: of 32 layers, 7, 15, 23 and 31. A smaller tower has its
last layer at least."""
TEMPLATE = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{%- elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ part.text }}{% endif -%}"
    "{%- endfor -%}{%- endif -%}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
"""The turns of Qwen's own template, without its tools."""


def build_random(
    kind: Kind,
    texts: Sequence[str],
    seed: int,
    out: Path,
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 4,
    head_width: int = 16,
    vision_hidden: int = 64,
    vision_layers: int = 2,
    vocabulary: int = 0,
    intermediate: int = 0,
    vision_intermediate: int = 0,
    vision_heads: int = 0,
    window: int = WINDOW,
    spread: float = 0.02,
    theta: float = 10000.0,
    dtype: Literal["bfloat16", "float32"] = "bfloat16",
    device: str = "cpu",
) -> None:
    """Writes a random model with its processor.

    Args:
        kind: the architecture.
        texts: sample texts of its tokeniser.
        seed: draws the weights.
        out: directory to make.
        hidden, layers, heads, kv_heads, head_width: the text stack; the width is a multiple of 16.
        vision_hidden, vision_layers: the vision tower.
        vocabulary: size of the embedding tables, if the tokeniser has fewer words. intermediate, vision_intermediate:
        the width within a gated layer; if 0, twice the stack's.
        vision_heads: heads of the vision tower; if 0, as many as have a width of 32.
        window: side in pixels of the windows of Qwen2.5-VL's tower; other towers have none.
        spread: standard deviation of the weights. A narrow model learns faster with more than the library's 0.02.
        theta: base of the rotary positions. A narrow head tells places on small screens apart with 100.
        dtype: number type of the weights, which policies that are trained from the model keep.
        device: where the weights are drawn. A GPU draws billions in seconds, and other numbers than a CPU.

    Raises:
        UsageError: no such kind.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    if kind not in KINDS:
        raise UsageError(f"no architecture {kind!r}.", f"One of {', '.join(KINDS)}.")
    tokenizer = _tokenizer(kind, texts)
    text = _text(kind, hidden, layers, heads, kv_heads, head_width)
    text["rope_parameters"]["rope_theta"] = theta
    vision = {**_vision(kind, vision_hidden, vision_layers), "out_hidden_size": hidden}
    if kind == "qwen2_5_vl":
        vision["window_size"] = window
    text["intermediate_size"] = intermediate or text["intermediate_size"]
    vision["intermediate_size"] = vision_intermediate or vision["intermediate_size"]
    vision["num_heads"] = vision_heads or vision["num_heads"]
    text["initializer_range"] = vision["initializer_range"] = spread
    config = _config(kind, tokenizer, text, vision, vocabulary)
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        model: Any = AutoModelForImageTextToText.from_config(config)
    model.generation_config.eos_token_id = config.text_config.eos_token_id
    model.generation_config.pad_token_id = config.text_config.pad_token_id
    model.to(getattr(torch, dtype)).save_pretrained(out)
    _write_processor(kind, tokenizer, out)


def _config(kind: Kind, tokenizer: Any, text: dict[str, Any], vision: dict[str, Any], vocabulary: int) -> Any:
    """Builds the model's configuration: its sizes, and the tokeniser's special tokens."""
    from transformers import AutoConfig

    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in _MARKS.items()}
    marks = {"pad_token_id": ids["pad"], "bos_token_id": None, "eos_token_id": ids["end"]}
    return AutoConfig.for_model(
        kind,
        text_config={**text, **marks, "vocab_size": max(vocabulary, -(-len(tokenizer) // 64) * 64)},
        vision_config=vision,
        image_token_id=ids["image"],
        video_token_id=ids["video"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
        tie_word_embeddings=False,
    )


def _text(kind: Kind, hidden: int, layers: int, heads: int, kv_heads: int, width: int) -> dict[str, Any]:
    """Builds the sizes of the text stack's configuration."""
    hybrid = kind.startswith("qwen3_5")
    turned = width // 2 if hybrid else width
    axes = [turned // 4, turned // 8, turned // 8]
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": hidden}
    if hybrid:
        experts["shared_expert_intermediate_size"] = hidden
    return {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width,
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": axes,
            **({"partial_rotary_factor": 0.5} if hybrid else {}),
        },
        "max_position_embeddings": 32768,
        **(_deltanet(layers, kv_heads, width) if hybrid else {}),
        **(experts if kind.endswith("_moe") else {}),
    }


def _deltanet(layers: int, heads: int, width: int) -> dict[str, Any]:
    """Builds the sizes of gated DeltaNet layers: the last layer has full attention, as every fourth of Qwen3.5."""
    return {
        "layer_types": ["linear_attention"] * (layers - 1) + ["full_attention"],
        "linear_num_key_heads": heads,
        "linear_num_value_heads": 2 * heads,
        "linear_key_head_dim": width,
        "linear_value_head_dim": width,
    }


def _vision(kind: Kind, hidden: int, layers: int) -> dict[str, Any]:
    """Builds the sizes and kind of the vision tower's configuration."""
    own: dict[str, Any] = {"num_position_embeddings": 256, "patch_size": 16}
    if kind.startswith("qwen3_vl"):
        own["deepstack_visual_indexes"] = [0]
    if kind == "qwen2_5_vl":
        whole = sorted({*range(WHOLE_EVERY - 1, layers, WHOLE_EVERY), layers - 1})
        own = {"fullatt_block_indexes": whole, "patch_size": 14}
    size = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "depth": layers}
    return {**size, "num_heads": max(1, hidden // 32), **own}


_MARKS = {
    "pad": "<|endoftext|>",
    "start": "<|im_start|>",
    "end": "<|im_end|>",
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
}


def _tokenizer(kind: Kind, texts: Sequence[str]) -> Any:
    from transformers import PreTrainedTokenizerFast

    built = build_tokenizer(texts, "box_v1")
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_level(built) if kind.startswith("qwen3_5") else built,
        pad_token=_MARKS["pad"],
        eos_token=_MARKS["end"],
        additional_special_tokens=[token for name, token in _MARKS.items() if name not in ("pad", "end")],
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def _byte_level(built: Tokenizer) -> Tokenizer:
    """Builds a byte-level tokeniser with the same added tokens.

    `AutoTokenizer` splits the text of any Qwen3.5 into bytes, and drops bytes that the vocabulary lacks.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    added = [token for _, token in sorted(built.get_added_tokens_decoder().items())]
    made.add_special_tokens([token for token in added if token.special])
    made.add_tokens([token for token in added if not token.special])
    return made


def _write_processor(kind: str, tokenizer: Any, out: Path) -> None:
    """Writes the files that a published directory has, with those of the video part."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    patch = 14 if kind == "qwen2_5_vl" else 16
    size = {"shortest_edge": (2 * patch) ** 2, "longest_edge": 2**24}
    shape: dict[str, Any] = {"patch_size": patch, "temporal_patch_size": 2, "merge_size": 2}
    Qwen2VLImageProcessorPil(**shape, size=size).save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "chat_template.jinja").write_text(TEMPLATE)
    processor, videos = ("Qwen2_5_VLProcessor", "Qwen2VL") if kind == "qwen2_5_vl" else ("Qwen3VLProcessor", "Qwen3VL")
    (out / "processor_config.json").write_text(json.dumps({"processor_class": processor}))
    written = {"video_processor_type": f"{videos}VideoProcessor", **shape, "size": size}
    (out / "video_preprocessor_config.json").write_text(json.dumps(written))
