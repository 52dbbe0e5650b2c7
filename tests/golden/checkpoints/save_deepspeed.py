"""Saves a checkpoint of DeepSpeed's ZeRO, and the numbers of the live engine as the expected result.

The network has tied weights, a buffer, a frozen layer and two parameter groups, with sizes that no rank count divides.

    pip install deepspeed==0.19.8 torch==2.13.0 safetensors
    torchrun --standalone --nproc-per-node 3 tests/golden/checkpoints/save_deepspeed.py 1 FOLDER
"""

import os
import sys
from pathlib import Path

os.environ.update({"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"})

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from safetensors.torch import save_file

MOMENTS = ("exp_avg", "exp_avg_sq")


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(13, 6)
        self.up = torch.nn.Linear(6, 5)
        self.down = torch.nn.Linear(5, 6, bias=False)
        self.head = torch.nn.Linear(6, 13, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen = torch.nn.Linear(3, 2)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.down(torch.tanh(self.up(self.embedding(ids))))).float().pow(2).mean()


def main(stage: int, folder: Path) -> None:
    optimizer = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}}
    zero = {"stage": stage, **{2: {"round_robin_gradients": True}, 3: {"sub_group_size": 40}}.get(stage, {})}
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "bf16": {"enabled": True}}
    config["optimizer"] = optimizer
    torch.manual_seed(0)
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=stage == 3):
        network = Network()
    groups: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            groups[name.endswith("bias")].append(weight)
    engine, *_ = deepspeed.initialize(
        model=network, model_parameters=[{"params": one} for one in groups.values()], config=config
    )
    for step in range(3):
        draw = torch.Generator().manual_seed(10 * step + dist.get_rank())
        engine.backward(engine(torch.randint(0, 13, (1, 4), generator=draw)))
        engine.step()
    if stage < 3:  # the first step links the moments before torch's AdamW makes them
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    engine.save_checkpoint(folder, client_state={"sampler": {"position": 7}})
    expected: dict[str, torch.Tensor] = {}
    for name, weight in network.named_parameters():
        with deepspeed.zero.GatheredParameters([weight], enabled=stage == 3):
            expected[f"weight:{name}"] = weight.detach().clone()
        if weight.requires_grad and stage != 2:  # with round-robin gradients, DeepSpeed returns other weights' numbers
            expected[f"master weight:{name}"] = safe_get_full_fp32_param(weight).clone()
            for kind in MOMENTS:
                expected[f"{kind}:{name}"] = safe_get_full_optimizer_state(weight, kind).clone()
    if dist.get_rank() == 0:
        save_file(
            {name: one.reshape(one.shape).contiguous() for name, one in expected.items()},
            folder / "expected.safetensors",
        )
        for script in folder.glob("*.py"):
            script.unlink()
    dist.barrier()  # no rank may end while another one still talks to it
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
