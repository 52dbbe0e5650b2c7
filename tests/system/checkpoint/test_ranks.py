"""Checkpoints on real gloo ranks: saved by some, loaded by others, equal to the last bit."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.system.parts.ranks import run_text

Go = Callable[..., None]

SCRIPT = """
import hashlib, json, sys, warnings
warnings.filterwarnings("ignore")
import torch, torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from learning.checkpoint import Checkpoints, Stretch, stretches

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
place, steps = sys.argv[1], json.loads(sys.argv[2])
LAYOUTS = {
    "rows": ((world,), [Shard(0)]),
    "columns": ((world,), [Shard(1)]),
    "2x2": ((2, 2), [Shard(0), Shard(1)]),
    "replicas": ((2, 2), [Replicate(), Shard(0)]),
    "4x1": ((4, 1), [Shard(0), Shard(1)]),
    "1x3": ((1, 3), [Shard(0), Shard(1)]),
}

def laid_out(full, layout):
    if layout == "flat":
        names = sorted(full)
        layouts = [(name, tuple(full[name].shape)) for name in names if full[name].dtype == torch.float32]
        flat = torch.cat([full[name].flatten() for name, _ in layouts])
        edges = [int(len(flat) * (at / world) ** 1.3) for at in range(world)] + [len(flat)]
        part = stretches(flat[edges[rank] : edges[rank + 1]].clone(), edges[rank], layouts)
        return part | {"half": full["half"].clone(), "none": full["none"].clone()}
    sizes, placements = LAYOUTS[layout]
    mesh = init_device_mesh("cpu", sizes)
    def put(name, tensor):
        fits = [p if not isinstance(p, Shard) or p.dim < tensor.ndim else Replicate() for p in placements]
        whole = tensor.ndim == 0 or name == "half"
        return tensor.clone() if whole else distribute_tensor(tensor, mesh, fits, src_data_rank=None)
    return {name: put(name, tensor) for name, tensor in full.items()}

def local(part):
    return part.flat if isinstance(part, Stretch) else part.to_local() if isinstance(part, DTensor) else part

def sha(state):
    return {name: hashlib.sha256(local(part).contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
            for name, part in state.items()}

with Checkpoints(place, keep=9) as checkpoints:
    for number, (action, layout) in enumerate(steps):
        full = torch.load(sys.argv[3])
        if action == "load":
            expected = sha(laid_out(full, layout))
            state = laid_out({name: torch.zeros_like(tensor) for name, tensor in full.items()}, layout)
            before = checkpoints.store.read_bytes
            extra = checkpoints.load(state)
            assert extra == {"position": 8 * checkpoints.latest()}, extra
            assert sha(state) == expected, [name for name in state if sha(state)[name] != expected[name]]
            read = torch.tensor(float(checkpoints.store.read_bytes - before))
            dist.all_reduce(read)
            unique = sum(tensor.nbytes for tensor in full.values())
            assert unique <= float(read) <= unique + 400_000, (read, unique)  # the manifest is read too
        else:
            state = laid_out(full, layout)
            step = (checkpoints.latest() or 0) + 1
            checkpoints.save(state, step, {"position": 8 * step})
            for part in state.values():
                local(part).zero_()
dist.destroy_process_group()
"""


SHAPES = {"embed": (130, 48), "odd": (7, 33), "deep": (5, 6, 4), "few": (1, 9), "bias": (1000,)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process's truth: parameters and AdamW moments after two steps."""
    draw = torch.Generator().manual_seed(1)
    model = {name: torch.nn.Parameter(torch.randn(shape, generator=draw)) for name, shape in SHAPES.items()}
    adam = torch.optim.AdamW(model.values(), lr=0.1)
    for step in range(2):
        torch.stack([(part * part * (step + 1)).sum() for part in model.values()]).sum().backward()
        adam.step()
        adam.zero_grad()
    state = {f"model.{name}": part.detach() for name, part in model.items()}
    for name, part in model.items():
        state |= {f"adam.{name}.{key}": value for key, value in adam.state[part].items()}
    state |= {"half": torch.arange(301).bfloat16(), "none": torch.empty(0, 3), "tied": state["model.odd"]}
    file = tmp_path_factory.mktemp("trained") / "state.pt"
    torch.save(state, file)
    return file


@pytest.fixture
def go(tmp_path: Path, trained: Path) -> Go:
    def run(ranks: int, *steps: tuple[str, str]) -> None:
        run_text(SCRIPT, tmp_path, tmp_path / "checkpoints", json.dumps(steps), trained, ranks=ranks)

    return run


@pytest.mark.nightly
def test_meshes_and_rows_go_from_4_ranks_to_3_and_from_there_to_flat_stretches(go: Go):
    go(4, ("save", "2x2"), ("load", "4x1"), ("save", "rows"), ("load", "replicas"))
    go(3, ("load", "1x3"), ("load", "rows"), ("save", "flat"), ("load", "columns"))


@pytest.mark.nightly
def test_rows_go_from_4_ranks_to_2_to_3_to_4_and_from_there_to_flat_stretches_and_replicas(go: Go):
    go(4, ("save", "rows"))
    go(2, ("load", "rows"), ("save", "rows"), ("load", "flat"))
    go(3, ("load", "rows"), ("save", "rows"), ("load", "flat"), ("save", "flat"))
    go(4, ("load", "rows"), ("save", "flat"), ("load", "replicas"), ("save", "replicas"), ("load", "flat"))


@pytest.mark.nightly
def test_meshes_go_from_2x2_to_4x1_to_1x3_and_from_there_to_flat_stretches(go: Go):
    go(4, ("save", "2x2"), ("load", "4x1"), ("save", "4x1"), ("load", "columns"))
    go(3, ("load", "1x3"), ("save", "1x3"), ("load", "flat"), ("save", "flat"), ("load", "columns"), ("load", "rows"))


TOGETHER = """
import errno, os, sys
from pathlib import Path
import torch, torch.distributed as dist
from learning.checkpoint import Checkpoints, Stretch
from schemas.failure import CheckpointError

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world, place = dist.get_rank(), dist.get_world_size(), Path(sys.argv[1])
spoken = []
def counting(name, call):
    def run(*arguments, **options):
        spoken.append(name)
        return call(*arguments, **options)
    return run
for name in ("gather_object", "all_gather_object", "scatter_object_list", "broadcast_object_list", "all_reduce"):
    setattr(dist, name, counting(name, getattr(dist, name)))

def state(edge=4000):
    edges = [0, 2500, edge, 9000]
    low, high = edges[rank], edges[rank + 1]
    return {"w": Stretch(torch.arange(float(low), float(high)), (90, 100), low), "all": torch.arange(5.0)}

def refused(call, *words):
    try:
        call()
    except CheckpointError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"rank {rank}: {words} was not refused")

checkpoints = Checkpoints(place, keep=9)
checkpoints.save(state(), 1, blocking=True)
spoken.clear()
checkpoints.save(state(), 2)
assert spoken[:1] == ["all_reduce"] and checkpoints._ranks.planned == 1, spoken
checkpoints.wait()
assert "scatter_object_list" not in spoken and "all_gather_object" not in spoken, spoken

# two of the ranks move the edge between them; the third one's layout is as before
checkpoints.save(state(edge=7000), 3, blocking=True)
assert checkpoints._ranks.planned == 2
found = state(edge=3000)
found["w"].flat.zero_()
checkpoints.load(found)
assert torch.equal(found["w"].flat, state(edge=3000)["w"].flat)

refused(lambda: checkpoints.save(state(), 4 + rank % 2), "One rank saves step 5 and another step 4")
whole = os.posix_fallocate
def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")
if rank == 1:
    os.posix_fallocate = full
checkpoints.save(state(), 6)
refused(checkpoints.wait, "rank 1", "No space is left", str(place))
os.posix_fallocate = whole
assert checkpoints.latest() == 3 and not (place / "step-00000006").exists()
checkpoints.save(state(), 6, blocking=True)

wrong = state()
if rank == 2:
    wrong["v"] = wrong.pop("w")
refused(lambda: checkpoints.load(wrong), "rank 2", "no tensor `v`")
dist.barrier()
shards = sorted((place / "step-00000006").glob("*-00001.distcp"))
if rank == 0:
    content = bytearray(shards[0].read_bytes())
    content[len(content) // 2] ^= 1
    shards[0].write_bytes(content)
dist.barrier()
found = state()
found["w"].flat.zero_()
refused(lambda: checkpoints.load(found), str(shards[0]), "`w` differs from the saved data")
assert not found["w"].flat.any()
checkpoints.load(found, step=3)
assert torch.equal(found["w"].flat, state()["w"].flat)
checkpoints.close()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_agree_on_cached_plans_changed_layouts_and_errors(tmp_path: Path):
    run_text(TOGETHER, tmp_path, tmp_path / "checkpoints", ranks=3)
