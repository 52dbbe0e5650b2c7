"""This process: its folders, its garbage collector, its background work, and its children with their environment.

`python -m` puts the current folder first on the path, so that a `models.py` or a `tasks` folder in it hides our
package of that name. Python's `-P` ends that for one process; `SAFE_PATH` reaches the processes that it starts, too,
such as torchrun's ranks. So our children import nothing from the current folder; a user's own commands may.
"""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from common.supervisor import supervised

if TYPE_CHECKING:
    from asyncio.subprocess import Process as AsyncProcess

SAFE_PATH = "PYTHONSAFEPATH"
_SET_HERE = "flywheel"
"""Value that distinguishes our setting from the user's own, which their commands keep."""
POLL_S = 0.1
"""Seconds between two checks whether a process is ready."""
KILL_S = 10.0
"""Seconds that killing a process and its descendants may take."""
YOUNG_OBJECTS = 50_000
"""New objects after which Python looks for cycles among them: some ten megabytes. With its own 700 a process that
imports Prefect, Great Expectations or torch spends a quarter of its start on that."""


def home() -> Path:
    """Returns the work folder, whose files can be deleted: `FLYWHEEL_HOME`, else `.flywheel` in the current folder."""
    return Path(os.environ.get("FLYWHEEL_HOME", ".flywheel")).absolute()


def own_folder(prefix: str) -> str:
    """Makes a temporary folder of this process, and deletes those of the same prefix whose processes were killed."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        owner = leftover.name.removeprefix(prefix).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(leftover, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-")


@contextmanager
def repeated(every_s: float, action: Callable[[], object], name: str, join_s: float | None = None) -> Generator[None]:
    """Repeats an action in a thread within the block; an action that fails is repeated all the same.

    Args:
        every_s: seconds between two calls, and before the first one.
        action: ends the thread by SystemExit.
        name: name of the thread.
        join_s: maximum seconds to wait at the end for a call under way.
    """
    done = Event()

    def run() -> None:
        while not done.wait(every_s):
            with suppress(Exception):
                action()

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(join_s)


def ours(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a process of ours: it imports nothing from the current folder."""
    return {**environ, SAFE_PATH: environ.get(SAFE_PATH) or _SET_HERE}


def theirs(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a user's command, whose scripts import modules of their own folder."""
    return {name: value for name, value in environ.items() if (name, value) != (SAFE_PATH, _SET_HERE)}


def collect_garbage_seldom() -> None:
    """Raises the number of new objects between two garbage collections."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def terminate(process: "AsyncProcess") -> None:
    """Ends a supervised process. Its own `send_signal` would take its exit code from the loop that waits for it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)


class ChildProcess:
    """A process that ends with this one, in any case, with all that it started; its output goes to a file.

    Args:
        command: the program and its arguments.
        log: the file.
        environ: its environment variables.
        grace_s: seconds for which it may go on after SIGTERM.
        append: keep what is in the file.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environ: Mapping[str, str], grace_s: float = 0.0, append: bool = False
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self._grace_s = log, grace_s
        with log.open("ab" if append else "wb") as written:
            self.process = subprocess.Popen(
                [*supervised(grace_s), *command],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        """Its exit status, below 0 for a signal that ended it; None while it runs."""
        return self.process.poll()

    @property
    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-800:].strip() or "nothing"

    def wait(self, ready: Callable[[], bool], limit_s: float) -> bool:
        """Waits until it is ready; returns False if it ends before, or is not ready in time."""
        until = time.monotonic() + limit_s
        while self.status is None and time.monotonic() < until:
            if ready():
                return True
            time.sleep(POLL_S)
        return False

    def stop(self) -> None:
        """Ends it, and waits until it and all that it started have ended."""
        self.process.terminate()
        try:
            self.process.wait(self._grace_s + KILL_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
