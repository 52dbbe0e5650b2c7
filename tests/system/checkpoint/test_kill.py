"""A save killed at any moment: the last committed checkpoint loads, whole, and the next save goes on."""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from learning.checkpoint import Checkpoints, verify
from storage import objects
from tests.system.parts.ranks import end, run_text, start, wait
from tests.tiers import NIGHTLY

EVENTS = {"open", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.listdir", "os.scandir"}


def numbers(step: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(step)
    return {
        "w": torch.randn(40, 30, generator=draw),
        "b": torch.randn(9, generator=draw),
        "s": torch.tensor(1.0 * step),
    }


def save_and_die(place: Path, step: int, at: int, said: Any) -> None:
    """Saves; kills itself just before the `at`-th thing that it does to the place, writes and syncs included."""
    count = 0

    def another() -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and arguments and str(place) in str(arguments[0]):
            another()

    def counted(call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            another()
            return call(*arguments)

        return run

    torch.set_num_threads(1)
    checkpoints = Checkpoints(place, keep=1)
    sys.addaudithook(hook)
    objects._CompleteWriter.write = counted(objects._CompleteWriter.write)
    os.fsync = counted(os.fsync)
    os.posix_fallocate = counted(os.posix_fallocate)
    checkpoints.save(numbers(step), step, {"step": step}, blocking=True)
    said.send(count)
    os._exit(0)


def killed_at(place: Path, step: int, at: int) -> int | None:
    """How many things a save did, or None if it was killed."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(target=save_and_die, args=(place, step, at, there))
    process.start()
    there.close()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return here.recv() if process.exitcode == 0 else None


def test_killed_at_every_stage_of_a_save_the_last_committed_checkpoint_loads_and_never_a_mix(tmp_path: Path):
    stages, seen = 0, set()
    for at in range(1, 200):
        place = tmp_path / str(at)
        with Checkpoints(place, keep=1) as checkpoints:
            checkpoints.save(numbers(1), 1, {"step": 1}, blocking=True)
        if (done := killed_at(place, 2, at)) is not None:
            stages = done
            break
        with Checkpoints(place, keep=1) as checkpoints:
            latest = checkpoints.latest()
            assert latest is not None
            found = {name: torch.zeros_like(tensor) for name, tensor in numbers(0).items()}
            assert checkpoints.load(found) == {"step": latest}
            assert all(torch.equal(found[name], tensor) for name, tensor in numbers(latest).items()), at
            assert verify(checkpoints.store).ok
            seen.add(latest)
            checkpoints.save(numbers(3), 3, {"step": 3}, blocking=True)
            assert checkpoints.latest() == 3
        assert [path.name for path in place.iterdir()] == ["step-00000003"], at
        assert len(list(place.glob("*/*"))) == 3, at
    assert stages >= 20 and seen == {1, 2}


RANKS = """
import os, signal, sys
import torch, torch.distributed as dist
from learning.checkpoint import Checkpoints, Stretch
from learning.checkpoint import checkpoints as module

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
place, dying, stage = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def part(step):
    whole = torch.arange(600_000.0) + step
    low, high = 600_000 * rank // world, 600_000 * (rank + 1) // world
    return {"w": Stretch(whole[low:high].clone(), (600, 1000), low)}

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

checkpoints = Checkpoints(place)
if stage == "load":
    found = {"w": Stretch(torch.zeros_like(part(0)["w"].flat), (600, 1000), part(0)["w"].start)}
    step = checkpoints.load(found)["step"]
    assert torch.equal(found["w"].flat, part(step)["w"].flat)
    checkpoints.save(part(9), 9, {"step": 9}, blocking=True)
    print(f"loaded {step}")  # one write: ranks share the pipe
else:
    checkpoints.save(part(1), 1, {"step": 1}, blocking=True)
    if rank == dying:
        setattr(module, stage, die)
    checkpoints.save(part(2), 2, {"step": 2}, blocking=True)
checkpoints.close()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "stage", "last"), [(2, "write_file", 1), (0, "tidy", 2)] if NIGHTLY else [(2, "write_file", 1)]
)
def test_when_a_rank_is_killed_other_ranks_load_what_was_committed_last(
    tmp_path: Path, rank: int, stage: str, last: int
):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    place = tmp_path / "checkpoints"
    launched = start(script, place, rank, stage, ranks=3)
    try:
        ended = wait(launched, 120)
        assert ended.returncode != 0, ended.stderr[-2000:]
    finally:
        end(launched)
    folders = json.dumps(sorted(path.name for path in place.iterdir()))
    assert f"loaded {last}" in run_text(RANKS, tmp_path, place, -1, "load", ranks=2), folders
    assert not [path for path in place.iterdir() if not (path / "manifest.json").exists()]
