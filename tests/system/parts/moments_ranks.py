"""Run by gloo ranks: steps with moments of a byte, each rank its rows; kept as a checkpoint. Not a test by itself."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from learning.checkpoint import Checkpoints, State
from learning.engines.fsdp.moments import AdamW8bit

SHAPES = ((70, 512), (500, 16), (5, 30, 64), (100, 7), (64,))
"""Rows that three ranks do not share evenly, experts, and weights whose moments stay in fp32."""
STEPS = 3


def drawn(step: int) -> list[Tensor]:
    """The weights (step 0) and their gradients, the same everywhere."""
    draw = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=draw) for shape in SHAPES]


def stepped(adam: AdamW8bit, weights: list[torch.nn.Parameter], step: int) -> None:
    """One step, on plain weights or on shards."""
    for weight, slope in zip(weights, drawn(step), strict=True):
        mesh = getattr(weight, "device_mesh", None)
        weight.grad = slope if mesh is None else distribute_tensor(slope, mesh, [Shard(0)])
    adam.step()


def state_of(adam: AdamW8bit, weights: list[torch.nn.Parameter]) -> State:
    """Weights and moments by name."""
    found: dict[str, Tensor] = {}
    for at, weight in enumerate(weights):
        state = adam.state[weight]
        if not state:
            state.update(adam.begun(weight))
        found |= {f"{at}": weight.detach(), **{f"{at}.{name}": one for name, one in state.items() if name != "step"}}
    return found


def main() -> None:
    """Saves the state after some steps."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weights = [torch.nn.Parameter(distribute_tensor(one, mesh, [Shard(0)])) for one in drawn(0)]
    adam = AdamW8bit(weights, lr=1e-2)
    for step in range(1, STEPS + 1):
        stepped(adam, weights, step)
    with Checkpoints(Path(sys.argv[1])) as checkpoints:
        checkpoints.save(state_of(adam, weights), STEPS, {}, blocking=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
