"""Run bubblewrap (`bwrap`), which isolates hybrid shells and desktops from this machine.

Processes in bubblewrap's namespaces end with bubblewrap, and bubblewrap ends with this process. There is one gap:
during the start, bubblewrap's second process waits for the first and is bound to it only later. If the first process is
killed in between, the second waits for ever, so `end` kills both. A leftover of a killed process's start holds no
resources. The next process that starts bubblewrap recognises it by `owned` and ends it (`sweep`).
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil

from schemas.failure import FlywheelError

OWNER = "FLYWHEEL_OWNER"


def bubblewrap(hint: str) -> str:
    """Returns the program's path; raises FlywheelError with this hint if it is not installed."""
    if (found := shutil.which("bwrap")) is None:
        raise FlywheelError("bubblewrap (`bwrap`) is not installed, so nothing can be kept apart.", hint)
    return found


def owned() -> tuple[str, ...]:
    """Returns the options that mark a start as this process's: a variable that is not visible in the sandbox."""
    return ("--setenv", OWNER, str(os.getpid()), "--unsetenv", OWNER)


def programs() -> Iterator[tuple[str, ...]]:
    """Yields the options that mount the program folders next to `/usr`: each is a link into `/usr`, as on most systems,
    or a separate folder."""
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        place = Path("/", name)
        if place.is_symlink():
            yield ("--symlink", os.readlink(place), str(place))
        elif place.is_dir():
            yield ("--ro-bind", str(place), str(place))


def end(process: int) -> None:
    """Kills bubblewrap, which has its own session, and a second process that still waits for the first."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


@cache
def sweep() -> None:
    """Ends the leftover starts of killed processes; runs once in a process."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "bwrap" and _is_left(process.cmdline()):
                process.kill()


def _is_left(command: list[str]) -> bool:
    owner = command[command.index(OWNER) + 1] if OWNER in command[:-1] else ""
    return owner.isdigit() and not psutil.pid_exists(int(owner))
