"""Run a worker, and end all processes that it started with it: `watchdog.py PARENT FOLDER PROGRAM ARGUMENT...`.

Browsers that a worker launches put themselves into sessions of their own and do not die with it. So this process adopts
every descendant whose parent ends (prctl PR_SET_CHILD_SUBREAPER). It ends when the worker does, when it gets SIGTERM,
or when its parent dies, for which the kernel sends a signal (PR_SET_PDEATHSIG). It then ends its children until there
are none, deletes the folder, and exits with the worker's status.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def main(parent: int, folder: str, command: list[str]) -> int:
    """Runs `command`; returns its exit status, 128 and the signal's number if a signal ended it."""
    libc = ctypes.CDLL(None)
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    code = 1
    if os.getppid() == parent:
        worker = os.fork()
        if worker == 0:
            _become(libc, command)
        while (exited := _exited(worker)) is None:
            if signal.sigwait(HEARD) != signal.SIGCHLD:
                break
        code = 128 + signal.SIGTERM if exited is None else exited
    _end_all()
    shutil.rmtree(folder, ignore_errors=True)
    return code


def _become(libc: ctypes.CDLL, command: list[str]) -> None:
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", flush=True)
        os._exit(127)


def _exited(worker: int) -> int | None:
    """The worker's exit status; None while it runs. Other ended children are reaped."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == worker:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if ended == 0:
                return None
    return 1


def _end_all() -> None:
    """Ends children until there are none; the children of an ended one become this process's."""
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
