#!/usr/bin/env bash
# DeepSpeed 0.19.8 with torch 2.13.0 (PyPI), 2026-11-29.
# Guess: `safe_get_full_fp32_param` gives the fp32 weight of the parameter that it is called with, and a checkpoint's
#   `param_slice_mappings`, from which `ds_to_universal.py` cuts weights, locate the same numbers.
# What happens: with `round_robin_gradients` (ZeRO 1 and 2) the flat buffer has another order than the mappings. Two
#   weights of one size exchange their numbers, silently, as do their moments. `zero_to_fp32.py` has the right order.
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
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param

torch.manual_seed(0)
network = torch.nn.Sequential(*(torch.nn.Linear(6, 6, bias=False) for _ in range(3)))
config = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": 2, "round_robin_gradients": sys.argv[2] == "on"},
}
engine, *_ = deepspeed.initialize(model=network, model_parameters=network.parameters(), config=config)
engine.backward(engine(torch.ones(1, 6, dtype=torch.bfloat16)).float().sum())
engine.step()
same = [torch.equal(safe_get_full_fp32_param(weight).bfloat16(), weight.detach()) for weight in network.parameters()]
engine.save_checkpoint(sys.argv[1])
if dist.get_rank() == 0:
    state = torch.load(f"{sys.argv[1]}/global_step1/mp_rank_00_model_states.pt", weights_only=False)
    parts = (f"{sys.argv[1]}/global_step1/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1))
    mappings = [torch.load(one, weights_only=False)["optimizer_state_dict"]["param_slice_mappings"][0] for one in parts]
    print("order of the buffer:", list(state["param_shapes"][0]))
    print("order of the mappings:", list(dict.fromkeys(name for one in mappings for name in one)))
    print("fp32 weights round to the network's own:", same)
    order = list(state["param_shapes"][0])
    wanted = (["0.weight", "2.weight", "1.weight"], [True, False, False])
    if (order, same) != (wanted if sys.argv[2] == "on" else (["0.weight", "1.weight", "2.weight"], [True] * 3)):
        sys.exit(1)
dist.barrier()
PYTHON
export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1
for round_robin in off on; do
  echo "round_robin_gradients $round_robin"
  "$folder/venv/bin/torchrun" --standalone --nproc-per-node 2 "$folder/train.py" "$folder/$round_robin" "$round_robin" \
    2>"$folder/log" | grep "round\|order" || { tail -5 "$folder/log"; exit 1; }
done
