"""Runs a program until its own standard input ends, then ends all that came of it: `watchdog.py PROGRAM ARGUMENT...`.

Whoever starts a keeper holds the other end of that pipe, which the kernel closes whatever becomes of it: nothing of a
server outlives a process that is killed. Orphans of the program fall to the keeper (prctl PR_SET_CHILD_SUBREAPER), so
that they are found too; and should the keeper itself be killed, the program ends with it.
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
"""How long the program may take to end by itself."""


def main(command: list[str]) -> int:
    """The program's exit status."""
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
    """Waits a moment; whether the pipe has ended."""
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
