"""Saves sharded tensors by `dcp.save` from every rank: in rows that do not divide evenly, and in columns."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

if __name__ == "__main__":
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {
        "rows": distribute_tensor(torch.arange(21.0).view(7, 3), mesh, [Shard(0)]),
        "columns": distribute_tensor(torch.arange(20.0).view(4, 5), mesh, [Shard(1)]),
    }
    dcp.save(state, checkpoint_id=sys.argv[1])
    dist.destroy_process_group()
