"""Run by gloo ranks: all write their part of a directory. Not a test by itself."""

import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.writing import write_parts
from learning.job import read_job
from models.tiny.layout import OWN


def main() -> None:
    """Writes `parts` beside the job."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(sys.argv[1])
    job = read_job(folder / "job.json")
    engine = FsdpEngine(job, rank, world)
    if rank == 0:
        shutil.copytree(job.parent, folder / "parts", ignore=shutil.ignore_patterns(*OWN))
    dist.barrier()
    write_parts(engine._model, torch.bfloat16, folder / "parts", rank, world, least=1 << 10, most=1 << 16)
    engine.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
