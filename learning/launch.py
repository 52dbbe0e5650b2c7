"""Starts, joins and ends the ranks of a training.

A rank that was started by another process ends with it.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from filelock import FileLock, Timeout

from common import log
from common.process import ours
from common.supervisor import end_with_parent
from learning.job import PARENT, Job
from learning.reports import send
from models.tiny.layout import is_tiny, read_config
from schemas.failure import RankLostError, UsageError

ON_CPU = 2
"""Number of processes of `train.processes=auto` without a GPU."""
PATIENCE = timedelta(days=7)
"""Timeout of the other ranks while rank 0 writes. If rank 0 dies, its connection closes, and the other ranks notice at
once."""
GPU_LOCKS = Path(tempfile.gettempdir()) / f"flywheel-gpus-{os.getuid()}"
"""Folder with a file for each GPU, which one training at a time locks, across all lakes, commands and servers."""
GPU_POLL_S = 0.5
TIMEOUT = timedelta(minutes=5)
"""Timeout of a rank that waits for other ranks within a step."""


def processes_of(asked: int | Literal["auto"], gpus: int) -> int:
    """Computes the number of ranks of a start without torchrun.

    Args:
        asked: `train.processes`.
        gpus: number of GPUs that the training may use; 0 for the small policy or with `train.device=cpu`.

    Raises:
        UsageError: there are more processes than GPUs.
    """
    if asked == "auto":
        return gpus or ON_CPU
    if 0 < gpus < asked:
        problem = f"`train.processes` is {asked}, each needs a GPU of its own, and this machine has {gpus}."
        raise UsageError(problem, "Set train.processes=auto, or train.device=cpu.")
    return asked


def start_ranks(job: Job) -> list[subprocess.Popen[bytes]]:
    """Starts the other ranks of this command and makes this process rank 0; does nothing under torchrun or with a
    single rank.

    Raises:
        UsageError: there are more processes than GPUs.
        CheckpointError: the parent cannot be read.
    """
    if "RANK" in os.environ:
        return []
    world = processes_of(job.train.processes, gpus_of(job))
    if world == 1:
        return []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0")
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE=str(world))
    command = [sys.executable, "-m", "learning.trainer", *sys.argv[1:]]
    environ = {**ours(), PARENT: str(os.getpid())}
    return [
        subprocess.Popen(command, env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(1, world)
    ]


def join(job: Job, started: Sequence[subprocess.Popen[bytes]] = ()) -> None:
    """Connects to the other ranks, if any, and reports the number of ranks and their devices.

    Args:
        job: the training.
        started: the ranks that this process started. If one of them ends before it has joined, this process ends, too,
            instead of waiting in vain. After joining, a closed connection shows the end of a rank.
    """
    world, gpus = int(os.environ.get("WORLD_SIZE", "1")), gpus_of(job)
    if world > 1:
        joined = threading.Event()
        if started:
            threading.Thread(target=_expect, args=(started, joined), daemon=True).start()
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=TIMEOUT)
        joined.set()
    found = {"machines": machines, "gpus": _found(gpus)} if (machines := machines_of()) > 1 else {}
    if os.environ.get("RANK", "0") == "0":
        send(processes=world, device="cuda" if gpus else "cpu", **({"gpus_here": gpus} if gpus else {}), **found)


def machines_of() -> int:
    """Counts the machines of this training, from torchrun's environment."""
    return int(os.environ.get("GROUP_WORLD_SIZE", "1"))


def _found(gpus: int) -> dict[str, int]:
    """Counts GPUs by machine name; all ranks call it."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (socket.gethostname(), gpus))
    return dict(found)


def gpus_of(job: Job) -> int:
    """Counts the GPUs of this machine that the training may use.

    Raises:
        CheckpointError: the parent cannot be read.
    """
    if job.train.device == "cpu" or is_tiny(read_config(job.parent)):
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def take_gpus(job: Job, waiting: Callable[[str], None]) -> list[FileLock]:
    """Locks the GPUs for this process and the ranks that it will start; waits while another training holds a GPU.

    Args:
        job: the training.
        waiting: called once for each GPU that another training holds, with a message that names its process.
    """
    gpus = gpus_of(job)
    if not gpus or ("RANK" in os.environ and PARENT in os.environ):  # rank 0 has locked them
        return []
    local = os.environ.get("LOCAL_RANK")  # under torchrun, each rank locks its own GPU
    ours = range(processes_of(job.train.processes, gpus)) if local is None else [int(local)]
    return lock_gpus([str(torch.cuda.get_device_properties(one).uuid) for one in ours], waiting)


def lock_gpus(names: Sequence[str], waiting: Callable[[str], None], folder: Path = GPU_LOCKS) -> list[FileLock]:
    """Locks GPUs by their names, always in the same order, and waits for GPUs that another training holds.

    The locks end with this process.

    Args:
        names: the driver's names of the GPUs.
        waiting: called once for each GPU that another training holds, with a message that names its process.
        folder: folder of the lock files.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    locks: list[FileLock] = []
    for file in (folder / name for name in sorted(names)):
        lock = FileLock(file)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            owner = file.read_text().strip() or "unknown"
            waiting(f"GPU {file.name} is another training's (process {owner}); this one waits for it.")
            lock.acquire(poll_interval=GPU_POLL_S)
        file.write_text(str(os.getpid()))
        locks.append(lock)
    return locks


def watch_parent() -> None:
    """Ends this process when its starter ends, if the starter asked for this."""
    if PARENT in os.environ:
        end_with_parent(signal.SIGKILL)
        if os.getppid() != int(os.environ[PARENT]):
            os._exit(1)


def end_ranks(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Waits briefly for the ranks that this process started, then kills them."""
    for process in ranks:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()


def _expect(started: Sequence[subprocess.Popen[bytes]], joined: threading.Event) -> None:
    while not joined.wait(0.2):
        for rank, process in enumerate(started, 1):
            if (status := process.poll()) is not None:
                log.write("error", f"rank {rank} ended with {status} before it joined")
                for other in started:
                    other.kill()
                os._exit(RankLostError.exit_code)
