#!/usr/bin/env bash
# transformers 5.24.0 (PyPI), torch 2.13.0; 2026-11-29.
#
# Two documents are packed into one row, and their position_ids restart at 0: the library's form of packing without a mask.
# An expert would guess: each document has the logits that it has alone, as with Qwen3, because the library finds the
# documents by their positions and separates them.
# What happens: Qwen3.5 separates them only in its full-attention layers. The gated DeltaNet layers, three of four, carry
# their state and their convolution into the next document, without a warning. A loss over packed documents is wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 transformers==5.24.0
"$folder/venv/bin/python" - 2>"$folder/messages" <<'PYTHON'
import sys

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM

sizes = dict(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4)
sizes |= dict(num_key_value_heads=2, head_dim=16)
state = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)
hybrid = Qwen3_5TextConfig(**sizes, **state)
print("layers of Qwen3.5:", ", ".join(hybrid.layer_types))
found = {}
for name, kind, config in (("Qwen3", Qwen3ForCausalLM, Qwen3Config(**sizes)), ("Qwen3.5", Qwen3_5ForCausalLM, hybrid)):
    torch.manual_seed(0)
    model = kind(config).eval()
    documents = [torch.randint(0, 64, (1, length)) for length in (37, 65)]
    with torch.no_grad():
        alone = torch.cat([model(input_ids=one, use_cache=False).logits for one in documents], dim=1)
        places = torch.cat([torch.arange(one.shape[1])[None] for one in documents], dim=1)
        packed = model(input_ids=torch.cat(documents, dim=1), position_ids=places, use_cache=False).logits
    first, second = ((packed - alone)[:, part].abs().max().item() for part in (slice(0, 37), slice(37, None)))
    print(f"{name}: the logits differ by {first:.1e} in the first document, by {second:.1e} in the second")
    found[name] = second
sys.exit(found["Qwen3"] > 1e-5 or found["Qwen3.5"] < 1e-3)
PYTHON
