"""Becomes a program that the kernel ends with its parent: `python watchdog.py PARENT PROGRAM ARGUMENT...`.

A parent that is killed outright can end nothing itself (prctl PR_SET_PDEATHSIG). Between fork and exec a process with
threads must not run code of its own, so this is a program.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
