"""Run by gloo ranks: each reads its own shard; together they hold what the library reads. Not a test by itself."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from learning.engines.fsdp.adapters import is_adapter, unadapted
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.model import load_model
from learning.engines.fsdp.nf4 import is_packed, pack, unpacked
from learning.engines.fsdp.shards import whole
from learning.job import read_job


def main() -> None:
    """Exits with an error that names the weight that is not as it was stored."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    job = read_job(Path(sys.argv[1]) / "job.json")
    engine, read = FsdpEngine(job, rank, world), dict(load_model(job.parent).named_parameters())
    held = 0
    for name, weight in engine._model.named_parameters():
        assert isinstance(weight, DTensor)
        held += weight.to_local().numel()
        full = whole(weight)
        if not is_adapter(name):
            stored = read[unadapted(name)]
            assert torch.equal(full, pack(stored) if is_packed(full) else stored.to(full)), name
            read[unadapted(name)] = unpacked(full)
    for name, weight in engine.masters().items():  # adapters begin as nothing
        assert isinstance(weight, DTensor)
        assert torch.equal(whole(weight), read[name.removeprefix("model.")].float()), name
    engine.close()
    total = torch.tensor(held)
    dist.all_reduce(total)
    everything = sum(weight.numel() for weight in engine._model.parameters())
    assert int(total) == everything and held < 0.6 * everything, (held, int(total), everything)
    if rank == 0:
        print(f"{held} of {everything}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
