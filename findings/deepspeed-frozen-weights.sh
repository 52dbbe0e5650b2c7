#!/usr/bin/env bash
# DeepSpeed 0.19.8 with torch 2.13.0 (PyPI), 2026-11-29.
# Guess: `zero_to_fp32.py` of a checkpoint gives all weights of the network, as its help says ("consolidated state dict").
# What happens: frozen weights are in the result for ZeRO 2 and 3. For ZeRO 1 they are left out without a message, though
#   the checkpoint has them: loading the result into a network with a frozen part fails, or with strict=False keeps the
#   part at its random values. Stage 1 saves no `frozen_param_fragments`; its weights are in `module`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy setuptools wheel packaging
DS_BUILD_OPS=0 "$folder/venv/bin/pip" install -q --no-build-isolation deepspeed==0.19.8
cat >"$folder/train.py" <<'PYTHON'
import sys

import deepspeed
import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

folder, stage = sys.argv[1], int(sys.argv[2])
network = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6))
network[0].requires_grad_(False)
config = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": stage},
}
trained = [weight for weight in network.parameters() if weight.requires_grad]
engine, *_ = deepspeed.initialize(model=network, model_parameters=trained, config=config)
engine.backward(engine(torch.ones(1, 6, dtype=torch.bfloat16)).float().sum())
engine.step()
engine.save_checkpoint(folder)
saved = torch.load(f"{folder}/global_step1/mp_rank_00_model_states.pt", weights_only=False)["module"]
found = get_fp32_state_dict_from_zero_checkpoint(folder)
print(f"stage {stage}: the checkpoint has {sorted(saved)}, zero_to_fp32 gives {sorted(found)}")
sys.exit(sorted(found) != (["1.bias", "1.weight"] if stage == 1 else sorted(saved)))
PYTHON
export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1
for stage in 1 2; do
  "$folder/venv/bin/torchrun" --standalone --nproc-per-node 1 "$folder/train.py" "$folder/$stage" "$stage" 2>"$folder/log" |
    grep "^stage" || { tail -5 "$folder/log"; exit 1; }
done
