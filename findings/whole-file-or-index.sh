#!/bin/bash
# Packages: transformers 5.23.0, sglang 0.5.23 (PyPI), 2026-11-27.
# An expert would guess: a checkpoint directory with model.safetensors and model.safetensors.index.json has one meaning,
# and the index, which names the files, decides everywhere.
# What happens: transformers reads model.safetensors and never opens the index; SGLang (like vLLM) reads the index's
# shards. A directory that was saved whole once and in shards later is trained from one save and served from the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.23.0 safetensors==0.8.0
"$folder/venv/bin/pip" install --quiet --no-deps --target "$folder/sglang" sglang==0.5.23
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import ast, glob, json, os, sys
from pathlib import Path
from typing import List, Optional

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
made = Path("checkpoint")
LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(made)
first = load_file(made / "model.safetensors")
shard = "model-00001-of-00001.safetensors"
save_file({name: tensor + 1 for name, tensor in first.items()}, made / shard, {"format": "pt"})
(made / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(first, shard)}))

read = LlamaForCausalLM.from_pretrained(made).state_dict()
name = "model.norm.weight"
whole = torch.equal(read[name], first[name])
print("transformers reads", "model.safetensors" if whole else shard)

source = Path("sglang/sglang/srt/model_loader/weight_utils.py").read_text()
function = next(node for node in ast.parse(source).body if getattr(node, "name", "") == "filter_duplicate_safetensors_files")
scope = {"os": os, "json": json, "List": List, "Optional": Optional}
exec(compile(ast.Module([function], []), "weight_utils.py", "exec"), scope)
found = glob.glob(str(made / "*.safetensors"))
served = scope["filter_duplicate_safetensors_files"](found, str(made), "model.safetensors.index.json")
print("SGLang reads", [os.path.basename(file) for file in served])
sys.exit(0 if whole and [os.path.basename(file) for file in served] == [shard] else 1)
PYTHON
