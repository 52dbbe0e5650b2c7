"""Start and end the processes of a training: on this machine, on several machines by torchrun, or by a command.

The processes write messages and heartbeats to the status folder. A launcher ends the processes that it started on this
machine. Processes on other machines find `ended` in the status folder, and exit.
"""

import os
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from common.process import ChildProcess, ours, theirs
from learning.job import Job
from schemas.config.operations import Launch, filled

HERE = "localhost"
GRACE_S, CANCEL_S = 3.0, 60.0
"""Maximum seconds for the end of a command, and for the cancelling command."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a training."""

    job: Job
    at: str
    """Location of the job: a file, or an address on S3."""
    board: str
    name: str
    """Unique name of this start: letters, digits and dashes."""
    log: Path
    """File with the processes' output."""


class Launcher(ABC):
    """Starts and ends the processes of one start of a training."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self._processes: list[ChildProcess] = []

    @abstractmethod
    def begin(self) -> None:
        """Start the processes, and return at once."""

    def ended(self) -> str | None:
        """Return the exit statuses of the started processes after all have ended; else None."""
        codes = [process.status for process in self._processes]
        return None if None in codes else ", ".join(map(str, codes))

    def end(self) -> None:
        """End the processes that are still running."""
        for process in self._processes:
            process.stop()

    def _run(self, command: Sequence[str]) -> None:
        """Start a process of this project."""
        self._processes.append(ChildProcess(command, self.start.log, environment(self.start.job), append=True))

    def _run_theirs(self, command: Sequence[str], grace_s: float = 0.0) -> ChildProcess:
        """Start a command of the user."""
        environ = theirs(environment(self.start.job))
        self._processes.append(ChildProcess(command, self.start.log, environ, grace_s, append=True))
        return self._processes[-1]


class LocalLauncher(Launcher):
    """Starts a process on this machine, which starts the other ranks and ends with this process."""

    @override
    def begin(self) -> None:
        command = [sys.executable, "-m", "learning.trainer", self.start.at, self.start.board]
        self._run(command)


class TorchrunLauncher(Launcher):
    """Starts `tasks.launching.node`, which runs torchrun, on each of `train.machines.hosts`."""

    @override
    def begin(self) -> None:
        machines = self.start.job.train.machines
        for host in machines.hosts:
            node = node_command(self.start)
            if host == HERE:
                self._run(node)
            else:
                reach = shlex.split(filled(machines.reach, {"host": host}))
                self._run_theirs([*reach, f"cd {shlex.quote(os.getcwd())} && exec env {_carried()} {shlex.join(node)}"])

    @override
    def ended(self) -> str | None:
        """Return the exit statuses after all processes have ended, or when too few machines are left."""
        machines = self.start.job.train.machines
        codes = [process.status for process in self._processes]
        failed = {host: code for host, code in zip(machines.hosts, codes, strict=True) if code}
        if None in codes and len(codes) - len(failed) >= (machines.least or len(codes)):
            return None
        return ", ".join(f"{code} on {host}" for host, code in failed.items()) or "0"


class CommandLauncher(Launcher):
    """Runs `train.machines.command` in a shell."""

    @override
    def begin(self) -> None:
        self._run_shell(self.start.job.train.machines.command)

    @override
    def end(self) -> None:
        running = self.ended() is None
        super().end()
        cancel = self.start.job.train.machines.cancel
        if running and cancel:
            process = self._run_shell(cancel)
            process.wait(lambda: False, CANCEL_S)
            process.stop()

    def _run_shell(self, template: str) -> ChildProcess:
        command = ["/bin/sh", "-c", filled(template, blanks(self.start))]
        return self._run_theirs(command, GRACE_S)  # `srun` and `kubectl` pass SIGTERM on


LAUNCHERS: dict[Launch, type[Launcher]] = {
    "local": LocalLauncher,
    "torchrun": TorchrunLauncher,
    "command": CommandLauncher,
}
"""Launchers by `train.launch`."""


def node_command(start: Start) -> list[str]:
    """Return the command that runs once on each machine."""
    machines = start.job.train.machines
    nodes = nodes_of(start.job)
    least = machines.least or nodes
    words = ["--nodes", f"{least}:{nodes}", "--name", start.name]
    return [machines.python or sys.executable, "-P", "-m", "tasks.launching.node", start.at, start.board, *words]


def nodes_of(job: Job) -> int:
    """Return the maximum number of machines of a training."""
    machines = job.train.machines
    return len(machines.hosts) if job.train.launch == "torchrun" else machines.nodes


def blanks(start: Start) -> dict[str, str]:
    """Return the values of the placeholders in `train.machines.command`."""
    nodes = nodes_of(start.job)
    return {
        "node": shlex.join(node_command(start)),
        "python": shlex.quote(start.job.train.machines.python or sys.executable),
        "name": start.name,
        "nodes": str(nodes),
        "least": str(start.job.train.machines.least or nodes),
        "processes": str(start.job.train.processes),
        "board": shlex.quote(start.board),
        "log": shlex.quote(str(start.log)),
    }


def environment(job: Job) -> dict[str, str]:
    """Return the environment variables of a training's processes. PATH includes the folder of this Python's
    programs."""
    path = os.pathsep.join(filter(None, [os.environ.get("PATH"), str(Path(sys.executable).parent)]))
    return {**ours(), "PATH": path, "OMP_NUM_THREADS": str(job.train.threads), "OMP_WAIT_POLICY": "PASSIVE"}


def _carried() -> str:
    """Return the variables that processes on other machines get. Each machine has its own credentials."""
    names = ("PYTHONPATH", "FLYWHEEL_HOME", "OMP_WAIT_POLICY", "AWS_ENDPOINT_URL", "AWS_REGION")
    return shlex.join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
