"""The ranks of `benchmarks.memory`: one training each, and what this process holds at most while it goes.

torchrun --nproc-per-node 4 -m benchmarks.memory.ranks FOLDER

A process's own peak is the kernel's (`VmHWM` of /proc/self/status, set back by writing 5 to /proc/self/clear_refs),
less what it holds after a training of a tiny model of the same kind, whose imports, threads and buffers are those of
any.
"""

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from learning.data.sample import read_samples
from learning.engines.engine import SampleRef
from learning.engines.fsdp.census import sizes_at
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.model import load_model, shard
from learning.job import Job, read_job
from learning.learner import Learner
from learning.planning.memory import MemoryRecipe, predict
from schemas.config.training import MemoryConfig

STEPS = 2
"""Of one batch; the second has moments from its beginning."""


def held(name: str) -> int:
    """Bytes of a line of /proc/self/status."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def settled() -> int:
    """What this process holds now, after what is free went back to the system; its peak begins anew."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return held("VmRSS")


def steps(learner: Learner, job: Job) -> list[Any]:
    """Takes the steps; tokens, targets and patches of each of this rank's pieces."""
    works: list[Any] = []
    for _ in range(STEPS):
        batch = learner.engine.ready(learner.prepare([SampleRef(at, at) for at in range(job.train.batch)]))
        works = [(work.ids.shape[-1], len(work.targets), len(work.pixels)) for work in batch.pieces]
        learner.gradient(batch)
        learner.engine.update(1e-5)
    return works


def recipe_of(job: Job, works: list[Any], world: int) -> MemoryRecipe:
    """What the memory model is given: the largest of each that this rank met."""
    return MemoryRecipe.of(
        job.train,
        ranks=world,
        tokens=max(work[0] for work in works),
        targets=max(work[1] for work in works),
        patches=max(work[2] for work in works),
        compute=2 if job.train.precision == "bfloat16" else 4,
        repeated=len(works) > 1,
        cuda=False,
    )


def trained(job: Job, rank: int, world: int) -> tuple[Learner, list[Any], int]:
    """A training's steps; the peak when its weights were in place."""
    engine = FsdpEngine(job, rank, world)
    loaded = held("VmHWM")
    learner = Learner(job, read_samples(job.samples), rank, world, engine)
    return learner, steps(learner, job), loaded


def read_whole(job: Job, world: int) -> Callable[[], object]:
    """The weights as they were read before: whole, by every process."""
    plain = job.train.model_copy(update={"memory": MemoryConfig()})
    return lambda: shard(load_model(job.parent), torch.device("cpu"), world, torch.float32, plain)


def main() -> None:
    """Rank 0 writes `measured.json`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(sys.argv[1])
    job = read_job(folder / "job.json")
    tiny = job.model_copy(update={"parent": folder / "tiny"})
    trained(tiny, rank, world)[0].close()
    baseline = settled()
    whole = read_whole(job, world)()
    before = held("VmHWM") - baseline
    del whole
    baseline = settled()
    dist.barrier()
    learner, works, loaded = trained(job, rank, world)
    peak = held("VmHWM")
    assert isinstance(learner.engine, FsdpEngine)
    settled()
    written = folder / "written"
    written.mkdir(exist_ok=True)
    learner.engine.write(written)
    wrote = held("VmHWM")
    network, _ = sizes_at(job.parent, job.train.lora)
    found = predict(network, recipe_of(job, works, world))
    mine = {
        "weights": network.weights,
        "read_whole": before,
        "loaded": loaded - baseline,
        "peak": peak - baseline,
        "wrote": wrote - baseline,
        "shard": (found.parts["weights"] + found.parts["frozen weights"]),
        "predicted": found.peak,
        **asdict(found),
        "work": works,
    }
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, mine)
    if rank == 0:
        (folder / "measured.json").write_text(json.dumps(everyone, default=dict))
    learner.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
