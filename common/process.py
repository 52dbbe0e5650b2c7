"""Manage this process: its folders, garbage collector and background work, and its child processes.

`python -m` puts the current folder first on the import path. A file `models.py` or a folder `tasks` in the current
folder would hide the package of this name. Python's option `-P` prevents this for one process; the variable `SAFE_PATH`
also prevents it in all processes that this process starts, such as the ranks of torchrun. Child processes of this
project therefore import nothing from the current folder. Commands of the user may.
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
_OWN_VALUE = "flywheel"
"""Value that shows that this project set the variable. The user's commands keep a value that the user set."""
POLL_S = 0.1
"""Seconds between two checks whether a process is ready."""
KILL_S = 10.0
"""Maximum seconds for killing a process and its descendants."""
YOUNG_OBJECTS = 50_000
"""Number of new objects after which Python searches them for cycles; they take about ten megabytes. With Python's
default of 700, a process that imports Prefect, Great Expectations or torch spends a quarter of its start on these
searches."""


def home() -> Path:
    """Returns the work folder: `FLYWHEEL_HOME`, else `.flywheel` in the current folder. Its files can be deleted."""
    return Path(os.environ.get("FLYWHEEL_HOME", ".flywheel")).absolute()


def own_folder(prefix: str) -> str:
    """Makes a temporary folder for this process, and deletes folders of the same prefix that killed processes left."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        owner = leftover.name.removeprefix(prefix).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(leftover, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-")


@contextmanager
def repeated(every_s: float, action: Callable[[], object], name: str, join_s: float | None = None) -> Generator[None]:
    """Repeats an action in a thread while the block runs, also after errors of the action.

    Args:
        every_s: seconds before the first call and between two calls.
        action: the action; SystemExit ends the thread.
        name: name of the thread.
        join_s: maximum seconds to wait for a running call at the end.
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
    """Returns the environment variables for a process of this project. It imports nothing from the current folder."""
    return {**environ, SAFE_PATH: environ.get(SAFE_PATH) or _OWN_VALUE}


def theirs(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment variables for a command of the user. Its scripts can import modules from their folder."""
    return {name: value for name, value in environ.items() if (name, value) != (SAFE_PATH, _OWN_VALUE)}


def collect_garbage_seldom() -> None:
    """Raises the number of new objects between two garbage collections."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def terminate(process: "AsyncProcess") -> None:
    """Ends a supervised process.

    The process's own `send_signal` would take the exit code away from the event loop that waits for it.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)


class ChildProcess:
    """A child process that always ends with this process, as do its own child processes. Its output goes to a file.

    Args:
        command: the program and its arguments.
        log: the file for the output.
        environ: environment variables of the process.
        grace_s: seconds between SIGTERM and SIGKILL.
        append: append to the file instead of replacing it.
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
        """Returns the exit status; None while the process runs. A negative status is the signal that ended it."""
        return self.process.poll()

    @property
    def tail(self) -> str:
        """Returns the end of the output."""
        return self.log.read_text(errors="replace")[-800:].strip() or "nothing"

    def wait(self, ready: Callable[[], bool], limit_s: float) -> bool:
        """Waits until the process is ready. Returns False if it ends first or is not ready in time."""
        until = time.monotonic() + limit_s
        while self.status is None and time.monotonic() < until:
            if ready():
                return True
            time.sleep(POLL_S)
        return False

    def stop(self) -> None:
        """Ends the process and all processes that it started, and waits for their end."""
        self.process.terminate()
        try:
            self.process.wait(self._grace_s + KILL_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def memory_mb(pid: int) -> float:
    """Returns the resident memory of a process and its descendants, in MB (shared pages count in each); 0 if it is
    gone."""
    import psutil  # here, since most processes do not need it

    def resident(process: psutil.Process) -> int:
        try:
            return process.memory_info().rss
        except psutil.NoSuchProcess:
            return 0

    try:
        first = psutil.Process(pid)
        return sum(map(resident, (first, *first.children(recursive=True)))) / 1e6
    except psutil.NoSuchProcess:
        return 0.0
