"""Directories with the processors, special tokens and chat templates of published checkpoints, and a vocabulary of a
few hundred tokens; and contexts to ask every family about."""

import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from models.families.family import ModelFamily
from models.families.registry import FAMILIES
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep

TEMPLATES = Path(__file__).parents[3] / "golden" / "chat_templates"
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
PLAIN = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""Tokens that a decoder does not drop."""
LIMITS = {14: (3136, 12845056), 16: (65536, 16777216)}
"""Least and most pixels of the published processors, by the side of a patch."""
MODELS = {
    "qwen2_vl": ("qwen2.5-vl", "Qwen2VLProcessor", "Qwen2VLVideoProcessor", 14),
    "qwen2_5_vl": ("qwen2.5-vl", "Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor", 14),
    "qwen3_vl": ("qwen3-vl", "Qwen3VLProcessor", "Qwen3VLVideoProcessor", 16),
    "thinking": ("qwen3.5-thinking", "Qwen3VLProcessor", "Qwen3VLVideoProcessor", 16),
}
"""Template, classes and patch of a model type; `thinking` is one that asks with an open `<think>`."""
TRAINED_FROM = {
    "ui-tars-1.0": "qwen2_vl",
    **dict.fromkeys(
        ("qwen3-vl", "holo-2", "thousandths", "gui-owl-1.5", "step-gui", "evocua", "mai-ui", "openwebrl"), "qwen3_vl"
    ),
    **dict.fromkeys(("qwen3.5", "qwen3.6", "qwen3.8", "fara-1.5", "ui-venus-2", "holo-3"), "thinking"),
}
"""What a family's checkpoints are; all others are taken for a Qwen2.5-VL."""
ASKED = [
    (name, template) for name in FAMILIES.names if name != "tiny" for template in FAMILIES.class_of(name).templates
]
INSTRUCTION = 'Write "it\'s done" into the field, then press OK.'
DONE: tuple[tuple[str, Action], ...] = (
    ("The field is empty.", act.Click(x=0.25, y=0.75)),
    ("It has the focus.\nI type.", act.Type(content="it's done")),
    ("More is below.", act.Scroll(x=0.5, y=0.5, direction="down")),
)
LAST: tuple[str, Action] = ("Now the button.", act.Click(x=0.125, y=0.3))
SIZES = ((320, 200), (320, 200), (320, 200), (320, 200))
"""Of the screens, the last the current one; all one, since a sample keeps no sizes of screens that are not shown."""


def write_directory(kind: str, folder: Path) -> Path:
    """A model directory without weights."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    name, processor, videos, patch = MODELS[kind]
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    config = {
        "model_type": "qwen3_vl" if kind == "thinking" else kind,
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "text_config": {"vocab_size": len(tokenizer)},
    }
    (folder / "config.json").write_text(json.dumps(config))
    least, most = LIMITS[patch]
    size = {"shortest_edge": least, "longest_edge": most}
    shape: dict[str, Any] = {"patch_size": patch, "temporal_patch_size": 2, "merge_size": 2}
    Qwen2VLImageProcessorPil(**shape, size=size).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text((TEMPLATES / f"{name}.jinja").read_text())
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": processor}))
    written = {"video_processor_type": videos, **shape, "size": size}
    (folder / "video_preprocessor_config.json").write_text(json.dumps(written))
    return folder


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    """Qwen's tokeniser with its own way of splitting text and its special tokens, learned from the prompts."""
    from tokenizers import AddedToken, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    texts = [file.read_text() for file in sorted((Path("models") / "families" / "templates").glob("*.txt"))]
    learned = Qwen2Tokenizer(vocab={})._tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learned.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=800, initial_alphabet=alphabet))
    model = json.loads(learned.to_str())["model"]
    made = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],
        unk_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )
    made.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL], special_tokens=True)
    made.add_tokens([AddedToken(token, normalized=False) for token in PLAIN])
    return made


def screen(number: int) -> Observation:
    """One of the screens, its picture."""
    image = Image.new("RGB", SIZES[number], "white")
    ImageDraw.Draw(image).rectangle((10 + 9 * number, 20, 60, 70), fill="black")
    out = io.BytesIO()
    image.save(out, "png")
    return Observation(out.getvalue(), *SIZES[number], "")


def done(family: ModelFamily) -> list[tuple[str, Action]]:
    """The steps before, and the last, as far as the family has such actions."""
    found = list[tuple[str, Action]]()
    for thought, one in (*DONE, LAST):
        try:
            family.write(one, SIZES[0])
        except UsageError:
            one = act.Click(x=0.5, y=0.25)
        found.append((thought, one))
    return found


def context(family: ModelFamily) -> Context:
    """What is asked: three past steps, the screen now."""
    turns = [
        PastStep(thought, family.write(one, SIZES[number]), screen(number))
        for number, (thought, one) in enumerate(done(family)[:-1])
    ]
    return Context(INSTRUCTION, tuple(turns), screen(3), 0)
