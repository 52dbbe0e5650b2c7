"""Run by gloo ranks: gradients of group methods and preferences under several plans. Not a test by itself.

FOLDER holds `METHOD.json` (a job) and `METHOD.pt`: loss, gradient, what is added to the parent's log probabilities.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from learning.algorithms.method import method_of
from learning.algorithms.ppo import PpoObjective
from learning.engines.fsdp.engine import FsdpBody
from learning.engines.fsdp.model import gradients_of
from learning.job import read_job
from learning.planning.step_plan import MicroBatch
from tests.system.parts.sharded_ranks import check, double, exact_to, random_plan


def main() -> None:
    """Exits with an error that names the plan if a gradient differs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        method, _, critic = name.partition("-")
        job = read_job(folder / f"{name}.json")
        learner, engine = double(job, method_of(job.train).read(job.samples), rank, world)
        loss, gradient, noise = torch.load(folder / f"{name}.pt")
        objective: Any = learner.objective
        known = objective._reference if method == "dpo" else objective._old
        known += noise
        count = len(engine.items)
        alone = (1,) * world
        wide = alone if engine.shape.undivided else (world,)
        plans: dict[str, list[MicroBatch] | None] = {
            "as the trainer plans it": None,
            "one micro-batch": random_plan(engine, count, [wide], 3),
            "several micro-batches": random_plan(engine, count, [alone, wide, alone], 5),
        }
        for shape, plan in plans.items():
            check(f"{name} {shape}", learner, engine, count, plan, (loss, gradient), exact_to(engine))
        if isinstance(objective, PpoObjective):
            check_critic(objective, *torch.load(folder / f"critic-{critic}.pt"))
        learner.close()
    dist.destroy_process_group()
    os._exit(0)


def check_critic(objective: PpoObjective, head: torch.Tensor, body: dict[str, torch.Tensor]) -> None:
    """What a gradient left in the critic, over all ranks, is the reference's."""
    found = objective.critic.head.grad
    assert found is not None
    dist.all_reduce(found)
    assert torch.allclose(found, head, atol=1e-5), float((found - head).abs().max())
    own = objective.critic.body
    gathered = gradients_of(own._model) if isinstance(own, FsdpBody) else {}
    assert gathered.keys() == body.keys(), gathered.keys() ^ body.keys()
    worst = max((float((gathered[key] - body[key]).abs().max()) for key in body), default=0.0)
    assert worst <= 1e-6, worst  # the head, which every gradient goes through, is in fp32


if __name__ == "__main__":
    main()
