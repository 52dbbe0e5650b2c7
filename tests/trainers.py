"""Trainers that are forked from one process which has imported torch: their own import takes seconds of every training.

What a trainer does, and how it is heard, is the real part's. Tests that end trainers start them as a user's are.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

import psutil
from typing_extensions import override

from common.process import ChildProcess
from learning.job import PARENT
from tasks.launching.launchers import LocalLauncher, environment

TRAINER = "learning.trainer"
NEEDED = (TRAINER, "models.language_model", "models.sampling", "safetensors.torch")
LONGEST = 1 << 20
"""Bytes of a request: the words and the environment of a trainer."""


class Forked:
    """A forked trainer, as `common.process.ChildProcess` shows a process."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid, self._end, self._lock = pid, end, threading.Lock()
        self.returncode: int | None = None

    @property
    def status(self) -> int | None:
        """Its exit status, if it has ended."""
        return self._looked(0.0)

    def stop(self) -> None:
        """Ends it with the processes that it started."""
        if self.status is None:
            for one in [*psutil.Process(self.pid).children(recursive=True), psutil.Process(self.pid)]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self._looked(None)

    def _looked(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._end], [], [], timeout)[0]:
                self.returncode = int(os.read(self._end, 64) or b"-9")
                os.close(self._end)
            return self.returncode


@contextmanager
def forked_trainers() -> Iterator[type[LocalLauncher]]:
    """A launcher whose trainings begin by a fork, until it is left."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.trainers", str(theirs.fileno())]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    maker = subprocess.Popen(command, env=environ, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    lock = threading.Lock()

    class ForkedLauncher(LocalLauncher):
        @override
        def begin(self) -> None:
            request = {"words": [self.start.at, self.start.board], "environ": environment(self.start.job)}
            read, write = os.pipe()
            with self.start.log.open("ab") as log, lock:
                socket.send_fds(ours, [json.dumps(request | {"cwd": os.getcwd()}).encode()], [log.fileno(), write])
            os.close(write)
            self._processes.append(cast("ChildProcess", Forked(int(os.read(read, 64)), read)))

    yield ForkedLauncher
    ours.close()
    maker.wait(30)


def main(requests: socket.socket) -> int:
    """Forks a trainer for every request, and tells how each ended, until nobody can ask any more."""
    for name in NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(ends):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    os.write(ends[pid], str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(ends.pop(pid))
        if requests in ready:
            asked, fds, _, _ = socket.recv_fds(requests, LONGEST, 2)
            if not asked:
                return 0
            log, end = fds
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number in (woken, wake, end, *ends.values(), requests.detach()):
                    os.close(number)
                return _trainer(json.loads(asked), log)
            ends[pid] = end
            os.write(end, str(pid).encode())
            os.close(log)


def _trainer(asked: dict[str, object], log: int) -> int:
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(cast("str", asked["cwd"]))
    os.environ.clear()
    os.environ.update(cast("dict[str, str]", asked["environ"]) | {PARENT: str(os.getppid())})
    sys.argv = [TRAINER, *cast("list[str]", asked["words"])]
    del sys.modules[TRAINER]
    runpy.run_module(TRAINER, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1]))))
