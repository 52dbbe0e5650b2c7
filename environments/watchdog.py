"""Start a program that the kernel ends with its parent: `watchdog.py PARENT READ WRITE FOLDER PROGRAM ARGUMENT...`.

A parent that is killed outright cannot clean up, so the kernel is asked to end the program (prctl PR_SET_PDEATHSIG).
This is a program of its own because code between fork and exec is unsafe in a process with threads. It also moves the
two descriptors of the debugging pipe to those that Chromium expects, 3 to read and 4 to write; `-` for a program
without.

FOLDER is the program's own, `-` for none: a child in a session of its own waits until the program has ended in any way,
and deletes it (`watchdog.py behind PROGRAM'S_PID FOLDER`).
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
LATE_S = 5.0
"""Seconds for which the started program may still write to its folder."""


def tied(read: str = "-", write: str = "-", folder: str = "-") -> list[str]:
    """The command prefix with which a program ends when this process ends."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), read, write, folder]


def main(parent: int, pipe: list[str], folder: str, command: list[str]) -> None:
    """Becomes `command`."""
    libc = ctypes.CDLL(None)
    ends = [int(end) for end in pipe if end != "-"]
    if hasattr(libc, "prctl"):
        if folder != "-":
            _leave_behind(libc, ends, folder)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    spare = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 5) for end in ends]
    for end in ends:
        os.set_inheritable(end, False)
    for end, place in zip(spare, (3, 4), strict=False):
        os.dup2(end, place, inheritable=True)
    os.execv(command[0], command)


def _leave_behind(libc: ctypes.CDLL, ends: list[int], folder: str) -> None:
    this = os.getpid()
    if os.fork():
        return
    os.setsid()  # the program's group is killed as a whole
    for end in ends:
        os.close(end)  # an end of the pipe that stays open here would hide that the program is gone
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, "behind", str(this), folder])


def behind(program: int, folder: str) -> None:
    """Deletes the folder once its parent, the program, has ended."""
    import shutil  # not for the program's own start, which it would slow down
    import time

    while os.getppid() == program:
        signal.sigwait({signal.SIGTERM})
    until = time.monotonic() + LATE_S
    while os.path.exists(folder) and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    if sys.argv[1] == "behind":
        behind(int(sys.argv[2]), sys.argv[3])
    else:
        main(int(sys.argv[1]), sys.argv[2:4], sys.argv[4], sys.argv[5:])
