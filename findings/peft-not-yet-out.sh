#!/usr/bin/env bash
# transformers 5.24.0 and peft 0.21.2 (PyPI), 2026-11-27.
# Guess: the newest transformers works with the newest peft; if not, loading an adapter reports it.
# What happens: transformers 5.24.0 requires peft 0.22.0, which PyPI does not have. `load_adapter` does not check this,
#   and the adapter is active from then on. `set_adapter`, `disable_adapters`, `enable_adapters`, `active_adapters` and
#   `add_adapter` refuse, so they can neither switch it off nor select another. peft's own calls on the same model work.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 transformers==5.24.0 peft==0.21.2
OMP_NUM_THREADS=1 "$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

folder = sys.argv[1] + "/adapter"
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
torch.manual_seed(0)
adapted = get_peft_model(LlamaForCausalLM(LlamaConfig(**sizes)), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
adapted.save_pretrained(folder)
ids = torch.arange(8)[None]


def fresh():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**sizes)).eval()


def answer(model):
    with torch.no_grad():
        return model(ids).logits


plain, model = answer(fresh()), fresh()
model.load_adapter(folder, adapter_name="one")
loaded = not torch.allclose(answer(model), plain)
refused = {}
for name, given in {"disable_adapters": (), "enable_adapters": (), "set_adapter": ("one",), "active_adapters": ()}.items():
    try:
        getattr(model, name)(*given)
    except ValueError as error:
        refused[name] = str(error)
wrapped = PeftModel.from_pretrained(fresh(), folder)
with wrapped.disable_adapter():
    back = torch.allclose(answer(wrapped), plain)
print("load_adapter changes the answers:", loaded)
for name, why in refused.items():
    print(f"{name}: {why}")
print("peft's own disable_adapter gives the plain answers:", back)
wanted = len(refused) == 4 and all(why.endswith(">= 0.22.0") for why in refused.values())
sys.exit(not (loaded and wanted and back))
PYTHON
