#!/bin/bash
# Package: transformers 5.24.0 with torch 2.13.0, 2026-11-29.
# An expert would guess: a model can score the tokens that its own `generate` drew, with the same pixels and grids, as RL
# trainers do; a token that it cannot read is never drawn.
# What happens: Qwen2.5-VL, Qwen3-VL and Qwen3.5 sometimes draw the placeholder of an image. `generate` goes on and reads
# it as an ordinary token. A forward pass over the same tokens raises ValueError: features of an image are missing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

VOCABULARY, START, END, IMAGE, VIDEO = 64, 60, 61, 62, 63
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 2,
}  # fmt: skip
VISION = {"depth": 2, "num_heads": 2, "patch_size": 14, "hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 64}
ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10_000.0}
NEWER = {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
KINDS = {
    "qwen2_5_vl": (TEXT, VISION | {"fullatt_block_indexes": [1], "window_size": 112}),
    "qwen3_vl": (TEXT, VISION | NEWER),
    "qwen3_5": (TEXT | LINEAR, VISION | {"num_position_embeddings": 16}),
}
found = {}
for kind, (text, vision) in KINDS.items():
    torch.manual_seed(0)
    marks = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": START, "vision_end_token_id": END}
    config = AutoConfig.for_model(kind, text_config=text | {"rope_parameters": ROPE}, vision_config=vision, **marks)
    model = AutoModelForImageTextToText.from_config(config).eval()
    prompt = torch.tensor([[5, START, IMAGE, IMAGE, IMAGE, IMAGE, END, 6, 7]])
    width = 3 * vision["patch_size"] ** 2 * 2
    picture = {"pixel_values": torch.randn(16, width), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    kinds = (prompt == IMAGE).long()
    drawn = model.generate(
        input_ids=prompt, attention_mask=torch.ones_like(prompt), mm_token_type_ids=kinds, **picture,
        do_sample=True, top_k=0, max_new_tokens=200, min_new_tokens=200,
    )  # fmt: skip
    replied = int((drawn[0, prompt.shape[1] :] == IMAGE).sum())
    try:
        longer = torch.cat([kinds, torch.zeros(1, 200, dtype=torch.long)], dim=1)
        model(input_ids=drawn, mm_token_type_ids=longer, **picture)
        found[kind] = "scored"
    except ValueError as error:
        found[kind] = "refused"
        print(f"{kind}: drew the placeholder {replied} times in 200 tokens; forward: {str(error)[:90]}")
    if not replied:
        found[kind] = "not drawn"
print(found)
sys.exit(0 if set(found.values()) == {"refused"} else 1)
PYTHON
