"""bubblewrap, which keeps what runs in hybrid shells and on desktops apart from this machine (`bwrap`).

What runs in its namespaces ends with it, and it ends with us. But in its start its second process waits for the first,
and is bound to it only then, so that it waits for ever where the first is killed meanwhile. Whoever ends a start kills
both (`end`); what a start whose process was killed outright left holds nothing, and is ended by the next process that
starts something (`sweep`), which knows whose it was by `owned`.
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
    """The program's path; raises FlywheelError with this hint where it is not installed."""
    if (found := shutil.which("bwrap")) is None:
        raise FlywheelError("bubblewrap (`bwrap`) is not installed, so nothing can be kept apart.", hint)
    return found


def owned() -> tuple[str, ...]:
    """The options by which a leftover of this process is known: a variable that nothing inside sees."""
    return ("--setenv", OWNER, str(os.getpid()), "--unsetenv", OWNER)


def programs() -> Iterator[tuple[str, ...]]:
    """The options that bring the folders of programs beside `/usr` in: a link into it, as on most systems, or a folder
    of its own."""
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        place = Path("/", name)
        if place.is_symlink():
            yield ("--symlink", os.readlink(place), str(place))
        elif place.is_dir():
            yield ("--ro-bind", str(place), str(place))


def end(process: int) -> None:
    """Kills bubblewrap, a session of its own, and a second process that still waits for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


@cache
def sweep() -> None:
    """Ends what is left of starts whose process was killed; once in a process."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "bwrap" and _is_left(process.cmdline()):
                process.kill()


def _is_left(command: list[str]) -> bool:
    owner = command[command.index(OWNER) + 1] if OWNER in command[:-1] else ""
    return owner.isdigit() and not psutil.pid_exists(int(owner))
