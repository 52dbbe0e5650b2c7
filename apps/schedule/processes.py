"""Start processes that end with this one in any case: a signal, an error, an outright kill. One is Prefect's server.

The server imports this module, so it imports nothing heavy.
"""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from common.process import ours
from environments import watchdog
from schemas.failure import FlywheelError

if TYPE_CHECKING:
    from starlette.middleware.trustedhost import TrustedHostMiddleware

PATIENCE_S = 120.0
HOST = "127.0.0.1"
SERVE = ("uvicorn", "--app-dir", str(Path(__file__).parents[2]), "--factory", "--lifespan", "on")
SERVE += ("apps.schedule.processes:create_app",)
"""The module that serves Prefect, in one process, and its arguments."""


def create_app() -> "TrustedHostMiddleware":
    """Prefect's server for uvicorn, which answers only under this machine's own host names.

    It has no authentication. Otherwise a browser on this machine could reach it under another site's name that points
    at this machine (DNS rebinding), and pages of that site would have the server's origin.
    """
    from prefect.server.api.server import create_app as create_prefect
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return TrustedHostMiddleware(create_prefect(), (HOST, "localhost"), www_redirect=False)


class ServiceProcess:
    """A process that is kept while this one lives; its output goes to a file."""

    def __init__(self, name: str, module: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.name, self.log = name, log
        tied = watchdog.tied()
        with log.open("wb") as written:
            self.process = subprocess.Popen(
                [*tied, sys.executable, "-m", *module],
                env={**ours(), **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits until it is ready.

        Raises:
            FlywheelError: it ended (as `check`), or was not ready within two minutes.
        """
        until = time.monotonic() + PATIENCE_S
        while not ready():
            self.check()
            if time.monotonic() > until:
                raise FlywheelError(f"The {self.name} did not start within {PATIENCE_S:.0f} s ({self.log}).")
            time.sleep(0.2)

    def check(self) -> None:
        """Raises FlywheelError if it has ended; quotes its last line, or names the signal that ended it."""
        status = self.process.poll()
        if status is None:
            return
        if status < 0:  # its last output does not explain a signal
            raise FlywheelError(f"The {self.name} was ended by {_name_of(-status)} ({self.log}).")
        last = (self.log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        raise FlywheelError(f"The {self.name} ended with status {status}: {last} ({self.log}).")


def end_all(kept: Sequence[ServiceProcess], patience_s: float = 7.0) -> None:
    """Ends processes and all that they started, in order; each gets time to finish its work.

    The remaining ones are killed afterwards.
    """
    started = [(one, _below(one)) for one in kept]
    for one, below in started:
        for process in below:  # the runs of a worker, which it would wait for
            _signal(process, signal.SIGTERM)
        psutil.wait_procs(below, timeout=patience_s)
        if one.process.poll() is None:
            one.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(timeout=2.0)
    left = [process for one, below in started for process in [*below, *_below(one)]]
    for process in left:
        _signal(process, signal.SIGKILL)
    for one in kept:
        one.process.kill()
        one.process.wait()


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _below(one: ServiceProcess) -> list[psutil.Process]:
    try:
        return psutil.Process(one.process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)
