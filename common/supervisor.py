"""Run a program that ends with its parent: `supervisor.py PARENT GRACE_S READ WRITE FOLDER PROGRAM ARGUMENT...`.

A killed parent cannot end its programs, so this process, the supervisor, does. The supervisor ends the program if it
gets SIGTERM or if its parent ends (prctl PR_SET_PDEATHSIG). When the program ends or has to end, all processes that it
started get SIGTERM. Those that still run after GRACE_S seconds are killed. This includes processes in other sessions,
because the supervisor adopts orphans (PR_SET_CHILD_SUBREAPER). The supervisor then deletes FOLDER, and exits with the
program's status. If the supervisor is killed, the kernel ends the program.

The program gets the descriptors READ and WRITE as 3 and 4, where Chromium expects its debugging pipe. `-` means no
folder or no descriptor.
"""

import contextlib
import fcntl
import os
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PARENT_ENDED = signal.SIGHUP
"""Signal of the kernel at the parent's end. The kernel also sends it if only the thread that started this process
ends."""
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, PARENT_ENDED}
POLL_S = 0.05


def supervised(grace_s: float = 0.0, read: str = "-", write: str = "-", folder: str = "-") -> list[str]:
    """Returns a prefix for commands. A command with the prefix ends with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(grace_s), read, write, folder]


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Asks the kernel to send this process a signal when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, number)


def main(parent: int, grace_s: float, pipe: list[str], folder: str, command: list[str]) -> int:
    """Runs the command and returns its exit status. A negative status is the signal that ended the command."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    end_with_parent(PARENT_ENDED)
    status = 1
    if os.getppid() == parent:
        ends = [int(end) for end in pipe if end != "-"]
        program = os.fork()
        if program == 0:
            _exec(command, ends)
        for end in ends:
            os.close(end)  # while this process has a pipe open, readers do not see the program's end
        status = _supervise(program, parent, grace_s)
    _end_all()
    if folder != "-":
        import shutil  # late, because the import delays the program's start

        shutil.rmtree(folder, ignore_errors=True)
    return status


def _exec(command: list[str], ends: list[int]) -> None:
    """Runs the command in this process."""
    end_with_parent(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores SIGPIPE, and the program would inherit this
    spare = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 5) for end in ends]
    for end in ends:
        os.set_inheritable(end, False)
    for end, place in zip(spare, (3, 4), strict=False):
        os.dup2(end, place, inheritable=True)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", flush=True)
    finally:
        os._exit(127)


def _supervise(program: int, parent: int, grace_s: float) -> int:
    """Waits for the program's end, or ends it on request, and returns its exit status."""
    while (status := _exit_status(program)) is None:
        number = signal.sigwait(SIGNALS)
        if number != signal.SIGCHLD and (number != PARENT_ENDED or os.getppid() != parent):
            break
    until = time.monotonic() + grace_s
    if status is None and grace_s:
        _signal_all(signal.SIGTERM)
    while status is None and time.monotonic() < until:
        time.sleep(POLL_S)
        status = _exit_status(program)
    return -signal.SIGTERM if status is None else status


def _exit_status(program: int) -> int | None:
    """Returns the program's exit status; None while the program runs. Reaps other ended children."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == program:
                return os.waitstatus_to_exitcode(status)
            if ended == 0:
                return None
    return 1


def _end_all() -> None:
    """Kills descendants until there are none. The children of a killed process become children of this process."""
    with contextlib.suppress(ChildProcessError):
        while True:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            _signal_all(signal.SIGKILL)
            os.waitpid(-1, 0)


def _signal_all(number: int) -> None:
    """Sends a signal to all descendants."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{int(name)}/stat") as stat:
            parents[int(name)] = int(stat.read().rpartition(")")[2].split()[1])
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    for one in below - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, number)


def _prctl(option: int, value: int) -> None:
    import ctypes  # late, because most importers of this module do not need it

    if call := getattr(ctypes.CDLL(None), "prctl", None):
        call(option, value)


if __name__ == "__main__":
    code = main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:5], sys.argv[5], sys.argv[6:])
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.kill(os.getpid(), -code)
    sys.exit(code)
