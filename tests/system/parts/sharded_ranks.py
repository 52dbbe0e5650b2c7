"""Run by gloo ranks: the gradient of one batch under many plans, against a reference file. Not a test by itself."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from learning.data.sample import read_samples
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job, read_job
from learning.learner import Learner
from learning.planning.sequence_plan import Group
from learning.planning.step_plan import MicroBatch, encoded, plan_step
from schemas.config.training import ExpertsConfig, MemoryConfig

SHAPES = ((1, 1, 1, 1), (4,), (2, 2), (2, 1, 1))
"""Every way to part four ranks into groups."""
WHOLE = MemoryConfig(whole_gradients=True)
WAYS: dict[str, dict[str, Any]] = {
    "activations computed twice": {"activation_checkpointing": True},
    "two rows of two": {"replicas": 2},
    "gradients shared out once": {"memory": WHOLE},
    "two rows, gradients shared out once": {"replicas": 2, "memory": WHOLE},
    "each rank all weights": {"replicas": 4},
}
EXPERTS: dict[str, dict[str, Any]] = {
    "parallel experts": {"experts": ExpertsConfig(parallel=True)},
    "balanced experts": {"experts": ExpertsConfig(balance=0.1)},
    "balanced parallel experts, computed twice": {
        "experts": ExpertsConfig(parallel=True, balance=0.1),
        "activation_checkpointing": True,
    },
}


def double(job: Job, samples: Sequence[Any], rank: int, world: int) -> tuple[Learner, FsdpEngine]:
    """A learner in double precision."""
    engine = FsdpEngine(job, rank, world, torch.float64)
    return Learner(job, samples, rank, world, engine), engine


def random_plan(engine: FsdpEngine, count: int, shapes: list[tuple[int, ...]], seed: int) -> list[MicroBatch]:
    """Samples and screens anywhere, in as many micro-batches as there are shapes; groups may be empty."""
    draw = np.random.default_rng(seed)
    places = [(number, place) for number, shape in enumerate(shapes) for place in range(len(shape))]
    owner = draw.integers(0, len(places), count)
    plan = []
    for number, shape in enumerate(shapes):
        groups, first = [], 0
        for place, degree in enumerate(shape):
            members = np.flatnonzero(owner == places.index((number, place)))
            groups.append(Group(degree, first, tuple(int(sample) for sample in members)))
            first += degree
        screens = len(encoded(groups, engine.items))
        plan.append(MicroBatch(tuple(groups), tuple(int(rank) for rank in draw.integers(0, first, screens))))
    return plan


def exact_to(engine: FsdpEngine) -> float:
    """The difference of gradients by rounding alone: gated DeltaNets compute in fp32, and so do the backward passes of
    norms, which a shared token has once."""
    return 1e-8 if engine.shape.undivided or engine.shares else 1e-10


def check(
    name: str,
    learner: Learner,
    engine: FsdpEngine,
    count: int,
    plan: list[MicroBatch] | None,
    reference: tuple[float, dict[str, torch.Tensor]],
    close: float = 1e-10,
) -> None:
    """The plan's loss and gradient are the reference's."""
    part = learner.gradient(engine.prepared(range(count), plan))
    dist.all_reduce(part)
    found, (loss, wanted) = engine.gradients(), reference
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    worst = max(float((found[key] - wanted[key]).abs().max()) for key in wanted)
    assert worst <= close and abs(float(part) - loss) <= 1e-10, f"{name}: {worst}, loss {float(part)} for {loss}"
    if dist.get_rank() == 0:
        print(f"{name}: {worst:.1e}")


def work_of(engine: FsdpEngine, plan: list[MicroBatch] | None) -> list[int]:
    """The tokens and screens that all ranks compute of all samples, and the micro-batches."""
    works = engine.prepared(range(len(engine.items)), plan).pieces
    counted = torch.tensor([sum(one.ids.numel() for one in works), sum(len(one.grids) for one in works if one.seen)])
    dist.all_reduce(counted)
    return [*counted.tolist(), len(works)]


def main() -> None:
    """Exits with an error that names the plan, or the work, if a gradient differs or shared prompts save nothing."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(sys.argv[1])
    job = read_job(folder / "job.json")
    samples = read_samples(job.samples)
    learner, engine = double(job, samples, rank, world)
    reference = torch.load(folder / "reference.pt")
    count = len(samples)
    alone = (Group(1, 0, tuple(range(count))), *(Group(1, other, ()) for other in range(1, world)))
    elsewhere = (world - 1,) * len(encoded(alone, engine.items))
    levelled = replace(engine.rules, cluster=None, cap=None)
    cap = 3 * max(item.tokens for item in engine.items) // 2
    plans: dict[str, list[MicroBatch] | None] = {
        "as the trainer plans it": None,
        "balanced": plan_step(engine.items, levelled),
        "two nodes": plan_step(engine.items, replace(levelled, per_node=2)),
        "alike together under a cap": plan_step(engine.items, replace(levelled, cap=cap)),
        "all on one rank, screens on another": [MicroBatch(alone, elsewhere)],
    }
    several = [SHAPES[0]] * 3 if engine.shape.undivided else [SHAPES[0], SHAPES[2], SHAPES[1]]
    if world == 4:
        plans["micro-batches of several shapes"] = random_plan(engine, count, several, 5)
    if world == 4 and engine.shape.undivided:
        plans[f"{SHAPES[0]}"] = random_plan(engine, count, [SHAPES[0]], 0)
    elif world == 4:
        groups = (Group(2, 0, tuple(range(count))), Group(2, 2, ()))
        pairs = MicroBatch(groups, (world - 1,) * len(encoded(groups, engine.items)))
        plans["two ranks without samples"] = [pairs]
        plans |= {f"{shape}": random_plan(engine, count, [shape], number) for number, shape in enumerate(SHAPES)}
    for name, plan in plans.items():
        check(name, learner, engine, count, plan, reference, exact_to(engine))
    computed = work_of(engine, plans["alike together under a cap"])
    learner.close()
    balanced = folder / "balanced.pt"
    ways = WAYS | (EXPERTS if balanced.exists() else {})
    for name, update in ways.items() if world == 4 else ():
        train = job.train.model_copy(update=update)
        other, engine = double(job.model_copy(update={"train": train}), samples, rank, world)
        wanted = torch.load(balanced) if train.experts.balance else reference
        close = 1e-8 if train.experts.balance else exact_to(engine)  # the library computes its auxiliary loss in fp32
        check(name, other, engine, count, random_plan(engine, count, several, 5), wanted, close)
        check(f"{name}, once more", other, engine, count, None, wanted, close)
        other.close()
    apart = job.model_copy(update={"train": job.train.model_copy(update={"share_prompts": False})})
    other, engine = double(apart, samples, rank, world)
    check("each prompt by itself", other, engine, count, None, reference, exact_to(engine))
    alone = work_of(engine, plan_step(engine.items, replace(levelled, cap=cap)))
    fewer = [few < many for few, many in zip(computed[:2], alone[:2], strict=True)]
    assert fewer == [not engine.shape.undivided] * 2 and computed[2] <= alone[2], (computed, alone)
    other.close()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
