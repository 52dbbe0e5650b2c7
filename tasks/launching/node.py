"""Run once on each machine of a training: find its GPUs, meet the other machines, and start torchrun.

Usage: `python -m tasks.launching.node JOB BOARD --nodes LEAST:MOST --name NAME`. JOB is a file that all machines share,
or an address on S3. The first machine is the leader, and writes its address to the status folder for the other
machines. A scheduler may therefore choose any machines. The process ends when its start of the training ends.
"""

import argparse
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

from common import log
from common.supervisor import supervised
from learning.job import Job, read_job
from learning.launch import gpus_of, processes_of
from learning.status_folder import ALONE, StallTimer, StatusFolder, every
from schemas.failure import FlywheelError, LakeError, UsageError
from tasks.launching.launchers import environment

FAR = ("10.255.255.255", 1)
"""An address outside this machine, to find this machine's own address. Nothing is sent to it."""


def main(words: list[str] | None = None) -> int:
    """Run the ranks of this machine, and return torchrun's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tasks.launching.node")
    parser.add_argument("job")
    parser.add_argument("board")
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--name", required=True)
    asked = parser.parse_args(words)
    board = StatusFolder(asked.board)
    try:
        job, path = _job(asked.job)
        processes = processes_of(job.train.processes, gpus_of(job))
    except FlywheelError as error:
        board.complain(socket.gethostname(), str(error))
        log.write("error", str(error))
        return error.exit_code
    return _run(job, board, torchrun(job, board, processes, asked.nodes, asked.name, [str(path), asked.board]))


def torchrun(job: Job, board: StatusFolder, processes: int, nodes: str, name: str, words: list[str]) -> list[str]:
    """Return the command that starts this machine's ranks.

    Args:
        job: the training.
        board: status folder of the start, which has the leader's address.
        processes: number of processes on this machine.
        nodes: number of machines, as `LEAST:MOST`.
        name: name of the start.
        words: arguments of the trainer.
    """
    address = address_here()
    own = f"{address}:{free_port()}"
    leader = board.lead(own)
    join_s = int(job.train.machines.join_s)
    conf = {"is_host": str(leader == own).lower(), "last_call_timeout": join_s, "join_timeout": 600 + join_s}
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--nnodes", nodes, "--nproc-per-node", str(processes), "--max-restarts", "0",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", leader, "--rdzv-id", name,
        "--rdzv-conf", ",".join(f"{key}={value}" for key, value in conf.items()),
        "--local-addr", address,
        "-m", "learning.trainer", *words,
    ]  # fmt: skip


def address_here() -> str:
    """Return the address of this machine for other machines."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(FAR)
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _job(at: str) -> tuple[Job, Path]:
    """Read the job on this machine.

    Raises:
        UsageError: the job does not exist on this machine.
    """
    if "://" in at:
        from tasks.launching.stored import fetch_job

        return fetch_job(at)
    if not Path(at).is_file():
        hint = (
            "FLYWHEEL_HOME has to be on a folder that all machines share, under one path; or set train.machines.store."
        )
        raise UsageError(f"There is no {at} on this machine.", hint)
    return read_job(Path(at)), Path(at)


def _run(job: Job, board: StatusFolder, command: list[str]) -> int:
    process = subprocess.Popen([*supervised(), *command], env=environment(job))
    every_s = every(job.train.hung_s)
    starter = StallTimer(2 * every_s)
    try:
        while process.poll() is None:
            time.sleep(min(1.0, every_s))
            with suppress(LakeError, OSError):
                if board.ended():
                    return 1
                starter.look(board.kept())
            if starter.idle_s > ALONE * job.train.hung_s:
                return 1
        return process.returncode
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
