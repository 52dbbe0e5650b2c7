"""Runs a program that dies with its parent: `python watchdog.py PARENT READ_FD WRITE_FD PROGRAM ARGUMENT...`.

A parent that is killed outright can clean nothing up, so the kernel is asked to (prctl PR_SET_PDEATHSIG). It is a
program of its own because code between fork and exec is unsafe in a process with threads. It also puts the two
descriptors of the debugging pipe where Chromium looks for them, 3 to read and 4 to write.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, read_fd: int, write_fd: int, command: list[str]) -> None:
    """Becomes `command`."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 5) for fd in (read_fd, write_fd)]
    for fd in (read_fd, write_fd):
        os.set_inheritable(fd, False)
    for fd, place in zip(spare, (3, 4), strict=True):
        os.dup2(fd, place, inheritable=True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
