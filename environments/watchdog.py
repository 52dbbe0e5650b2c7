"""Becomes a program that the kernel ends with its parent: `watchdog.py PARENT READ_FD WRITE_FD PROGRAM ARGUMENT...`.

A parent that is killed outright can clean nothing up, so the kernel is asked to (prctl PR_SET_PDEATHSIG). It is a
program of its own because code between fork and exec is unsafe in a process with threads. It also puts the two
descriptors of the debugging pipe where Chromium looks for them, 3 to read and 4 to write; `-` for a program without.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, pipe: list[str], command: list[str]) -> None:
    """Becomes `command`."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    ends = [int(end) for end in pipe if end != "-"]
    spare = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 5) for end in ends]
    for end in ends:
        os.set_inheritable(end, False)
    for end, place in zip(spare, (3, 4), strict=False):
        os.dup2(end, place, inheritable=True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:4], sys.argv[4:])
