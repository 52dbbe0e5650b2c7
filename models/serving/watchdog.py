"""Runs a program until its own standard input ends, then ends all its processes: `watchdog.py PROGRAM ARGUMENT...`.

The starter of a watchdog holds the other end of that pipe, which the kernel closes however the starter ends: no process
of a server outlives a killed starter. The watchdog adopts orphans of the program (prctl PR_SET_CHILD_SUBREAPER), so
that it finds them too; and if the watchdog itself is killed, the program ends with it.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_S = 10.0
"""Seconds that the program may take to end by itself."""


def main(command: list[str]) -> int:
    """Runs the command; returns the program's exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.close(0))
    _libc("prctl", PR_SET_CHILD_SUBREAPER, 1)
    program = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=lambda: _libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    while program.poll() is None and not _asked():
        pass
    if program.poll() is None:
        program.terminate()
        end = time.monotonic() + GRACE_S
        while program.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
    while left := psutil.Process().children(recursive=True):
        for one in left:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1)
    return program.wait()


def _asked() -> bool:
    """Waits a moment; returns whether the pipe has ended."""
    try:
        return bool(select.select([0], [], [], 0.2)[0]) and not os.read(0, 1)
    except OSError:
        return True


def _libc(name: str, *arguments: int) -> None:
    call = getattr(ctypes.CDLL(None), name, None)
    if call is not None:
        call(*arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) & 0xFF)
