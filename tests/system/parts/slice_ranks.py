"""Run by gloo ranks: slices of trajectories against one sequence a reply. Not a test by itself.

FOLDER holds `NAME.json` (a job) and, for some, `NAME.pt`: loss, gradient, and what is added to the parent's log
probabilities.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from learning.algorithms.method import method_of
from learning.data.slices import chained
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import read_job
from learning.learner import Learner
from learning.planning.step_plan import MicroBatch
from tests.system.parts.sharded_ranks import check, double, exact_to, random_plan


class Apart(FsdpEngine):
    """Puts each reply into a sequence of its own."""

    def encode(self, *given: Any) -> list[int]:
        counts = super().encode(*given)
        self._follows = {}
        return counts


def main() -> None:
    """Exits with an error that names the job if a log probability, a loss or a gradient differs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        job = read_job(folder / f"{name}.json")
        samples = method_of(job.train).read(job.samples)
        count = len(samples)
        apart = Learner(job, samples, rank, world, Apart(job, rank, world, torch.float64))
        learner, engine = double(job, samples, rank, world)
        exact = exact_to(engine)
        known, other = (getattr(one.objective, "_old", torch.zeros(0)) for one in (learner, apart))
        assert torch.allclose(known, other, atol=exact), name
        place = folder / f"{name}.pt"
        reference = None
        if place.exists():
            loss, gradient, noise = torch.load(place)
            known += noise
            other += noise
            reference = loss, gradient
        part = apart.gradient(apart.engine.prepared(range(count)))  # type: ignore[attr-defined]
        dist.all_reduce(part)
        wanted = float(part), apart.engine.gradients()  # type: ignore[attr-defined]
        if reference is not None:
            check(f"{name}: replies apart", apart, apart.engine, count, None, reference, exact)  # type: ignore[arg-type]
        sequences = chained(range(count), engine._follows)
        held: Any = SimpleNamespace(items=[engine.items[one[-1]] for one in sequences])
        alone = (1,) * world
        plans: dict[str, list[MicroBatch] | None] = {
            "as the trainer plans it": None,
            "one group of all": random_plan(held, len(sequences), [alone if engine.shape.undivided else (world,)], 3),
            "micro-batches": random_plan(held, len(sequences), [alone, alone], 5),
        }
        for shape, plan in plans.items():  # norms are computed in fp32, and add up in another order
            check(f"{name}: {len(sequences)} of {count}, {shape}", learner, engine, count, plan, wanted, 1e-8)
        learner.close()
        apart.close()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
