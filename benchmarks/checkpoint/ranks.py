"""Save and load checkpoints on the ranks of a benchmark: `torchrun -m benchmarks.checkpoint.ranks JOBS.json`."""

import gc
import json
import logging
import os
import shutil
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse
from torch.distributed.checkpoint.state_dict_saver import async_save as dcp_async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, zeros

from learning.checkpoint import Checkpoints

Finish = Callable[[], object]
State = dict[str, Any]


def shapes(hidden: int) -> dict[str, tuple[int, ...]]:
    """A small language model in fp32 with AdamW's two moments: 1.0 GiB at hidden 1,024."""
    weights = {"embed": (13_696 * hidden // 1024, hidden)}
    for layer in range(6):
        for name in "qkvo":
            weights[f"{layer}.{name}"] = (hidden, hidden)
        weights |= {f"{layer}.up": (4 * hidden, hidden), f"{layer}.down": (hidden, 4 * hidden)}
        weights |= {f"{layer}.norm{place}": (hidden,) for place in (1, 2)}
    kinds = ("model", "exp_avg", "exp_avg_sq")
    return {f"{kind}.{name}": shape for kind in kinds for name, shape in weights.items()}


def sharded(hidden: int, replicas: int = 1) -> State:
    """That state in rows over the ranks, as FSDP2 keeps it; with `replicas`, each row on that many ranks (HSDP)."""
    mesh = init_device_mesh("cpu", (replicas, dist.get_world_size() // replicas))
    places = [Replicate(), Shard(0)]
    return {name: zeros(shape, device_mesh=mesh, placements=places) for name, shape in shapes(hidden).items()}


def fill(state: State) -> int:
    """Random numbers; their sum as integers over all ranks, by which a load is checked."""
    torch.manual_seed(dist.get_rank())
    for part in state.values():
        part.to_local().uniform_()
    return checked_sum(state)


def checked_sum(state: State) -> int:
    """The sum of all bits as 32-bit integers."""
    total = sum((part.to_local().view(torch.int32).sum(dtype=torch.int64) for part in state.values()), torch.tensor(0))
    dist.all_reduce(total)
    return int(total)


class Saving:
    """The ways to save; each returns what is left to do once the training may go on."""

    def __init__(self, state: State, place: Path) -> None:
        self.state, self.place = state, place
        self.group = cast(dist.ProcessGroup, dist.new_group(backend="gloo"))
        self.ours = Checkpoints(place / "ours", keep=1)
        self.ways: dict[str, Callable[[int], Finish]] = {
            "ours": self._ours,
            "dcp.save": lambda step: self._dcp(),
            "dcp.async_save, thread": lambda step: self._async(AsyncCheckpointerType.THREAD),
            "dcp.async_save, process": lambda step: self._async(AsyncCheckpointerType.PROCESS),
            "torch.save, gathered": self._gathered,
            "torch.save, a file a rank": self._by_rank,
        }

    def _ours(self, step: int) -> Finish:
        self.ours.save(self.state, step)
        return self.ours.wait

    def _gathered(self, step: int) -> Finish:
        whole = {}
        for name, part in self.state.items():
            mine = part.to_local()
            parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
            dist.gather(mine, parts, group=self.group)
            if parts is not None:
                whole[name] = torch.cat(parts)
        if dist.get_rank() == 0:
            _torch_save(whole, self.place / "gathered.pt")
        dist.barrier()
        return lambda: None

    def _by_rank(self, step: int) -> Finish:
        _torch_save({name: part.to_local() for name, part in self.state.items()}, self.place / f"{dist.get_rank()}.pt")
        dist.barrier()
        return lambda: None

    def _dcp(self) -> Finish:
        dcp_save(self.state, checkpoint_id=self.place / "dcp", process_group=self.group)
        return lambda: None

    def _async(self, kind: AsyncCheckpointerType) -> Finish:
        answer = dcp_async_save(
            self.state,
            checkpoint_id=self.place / "dcp",
            process_group=self.group,
            async_checkpointer_type=kind,
        )
        if isinstance(answer, AsyncSaveResponse):
            answer.staging_completion.result()
            return answer.upload_completion.result
        return answer.result


def save(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every way in turn, `rounds` times, each round from another one on.

    The first time of each takes its buffers and counts apart. Of `few` one turn counts.
    """
    state = sharded(job["hidden"])
    fill(state)
    place = Path(job["place"])
    saving = Saving(state, place)
    ways = list(saving.ways.items())
    plans: list[float] = []
    for turn in range(job["rounds"] + 1):
        first = turn % len(ways)
        for name, way in ways[first:] + ways[:first]:
            if turn > 1 and name in job["few"]:
                continue
            gc.collect()
            _fresh(place)
            _together()
            started = time.perf_counter()
            finish = way(turn)
            blocked = time.perf_counter() - started
            if name == "ours":
                plans.append(_slowest(saving.ours.planned_s))
            finish()
            whole = _slowest(time.perf_counter() - started)
            yield {"way": name, "turn": turn, "blocked": _slowest(blocked), "whole": whole}
    yield {"first_s": plans[0], "cached_s": statistics.median(plans[1:])}
    saving.ours.close()


def load(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Loads what other numbers of ranks saved, with stock DCP and with ours, and counts what is read."""
    here = Path(job["place"])
    for source in job["sources"]:
        for replicas in job["replicas"]:
            for way in ("dcp.load", "ours"):
                state = sharded(job["hidden"], replicas)
                _together()
                started = time.perf_counter()
                read = _load_dcp(state, here / source["name"]) if way == "dcp.load" else _load_ours(state, here, source)
                seconds = time.perf_counter() - started
                if checked_sum(state) != source["sum"] * replicas:
                    raise RuntimeError(f"{way} of {source['name']} loaded other numbers than were saved")
                yield {
                    "way": way,
                    "from": source["ranks"],
                    "to": dist.get_world_size(),
                    "replicas": replicas,
                    "read": _added(read),
                    "seconds": _slowest(seconds),
                }
    if job["save"]:
        state = sharded(job["hidden"])
        total = fill(state)
        with Checkpoints(here / f"ours{dist.get_world_size()}") as checkpoints:
            checkpoints.save(state, 0)
        dcp_save(state, checkpoint_id=here / f"from{dist.get_world_size()}")
        yield {"name": f"from{dist.get_world_size()}", "sum": total, "ranks": dist.get_world_size()}


class CountingFiles(FileSystem):
    """DCP's file system, which counts the bytes that are really read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """A stream whose reads are counted."""
        with open(path, mode, buffering=0) as raw:
            yield _Counted(raw, self)


class _Counted:
    def __init__(self, raw: Any, files: CountingFiles) -> None:
        self._raw, self._files = raw, files

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self._files.read += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        count = self._raw.readinto(buffer)
        self._files.read += count
        return count

    def readline(self) -> bytes:
        line = self._raw.readline()
        self._files.read += len(line)
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def _load_dcp(state: State, folder: Path) -> int:
    reader = FileSystemReader(folder)
    files = reader.fs = CountingFiles()
    dcp_load(state, storage_reader=reader)
    return files.read


def _load_ours(state: State, here: Path, source: dict[str, Any]) -> int:
    with Checkpoints(here / f"ours{source['ranks']}") as checkpoints:
        checkpoints.load(state)
        return checkpoints.store.read_bytes


def _torch_save(content: dict[str, Tensor], path: Path) -> None:
    with path.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())


def _fresh(place: Path) -> None:
    """Removes what the way before wrote, except ours, which removes its own."""
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(place / "dcp", ignore_errors=True)
        for file in place.glob("*.pt"):
            file.unlink()
        os.sync()


def _together() -> None:
    dist.barrier()


def _slowest(value: float) -> float:
    found = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found)


def _added(value: int) -> int:
    found = torch.tensor(value)
    dist.all_reduce(found)
    return int(found)


def main() -> None:
    """Does the jobs one after the other; rank 0 writes what each found beside them."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    file = Path(sys.argv[1])
    jobs = json.loads(file.read_text())
    dist.init_process_group("gloo")
    found = [list({"save": save, "load": load}[job["task"]](job)) for job in jobs]
    if dist.get_rank() == 0:
        file.with_suffix(".found").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
