"""Run Prefect's temporary server if no other is configured.

Prefect also starts one by itself: in the terminal's process group, where Ctrl-C ends it before the run that it records,
and not bound to us, so that it outlives a killed process. This one gets signals only from us.
"""

import atexit
import fcntl
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

import prefect
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_API_URL, PREFECT_HOME

from common.process import ours
from environments import watchdog
from schemas.failure import FlywheelError
from tasks.running.answering import answers, is_there
from tasks.running.console import err

PATIENCE_S = 120.0
QUIET = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""Settings of a temporary Prefect server: no pages, and final settings."""

SERVE = ("uvicorn", "--app-dir", str(Path(__file__).parent.parent), "--factory", "--lifespan", "on")
SERVE += ("apps.prefect_app:create_app",)
"""The module that serves Prefect, in one process, and its arguments."""


class TemporaryServer:
    """A server as long as this process; started at once, there when `wait` returns.

    Where no server of this version was before, it first makes or changes Prefect's database, which two at once cannot:
    they start one after the other.
    """

    def __init__(self) -> None:
        self._made = PREFECT_HOME.value() / f"started-{prefect.__version__}"
        self._starting = (PREFECT_HOME.value() / "starting.lock").open("w")
        _take(self._starting, self._made)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}/api"
        self._log = PREFECT_HOME.value() / "server.log"
        served = ["-m", *SERVE, "--host", "127.0.0.1", "--port", port]
        tied = watchdog.tied()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*tied, sys.executable, *served, "--log-level", "error"],
                env={**ours(), **QUIET, "PREFECT_API_URL": self.url},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.stop)

    def wait(self) -> None:
        """Waits until it answers, and makes it Prefect's.

        Raises:
            FlywheelError: it died, or did not answer within two minutes.
        """
        try:
            self._wait()
            self._made.touch()
        finally:
            self._starting.close()
        os.environ["PREFECT_API_URL"] = os.environ["FLYWHEEL_TEMPORARY_SERVER"] = self.url
        refresh_global_settings_context()

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not answers(self.url):
            if self._process.poll() is not None or time.monotonic() > until:
                ended = "it did not answer" if self._process.returncode is None else f"exit {self._process.returncode}"
                raise FlywheelError(
                    f"Prefect's temporary server did not start ({ended}; {self._log}).",
                    "Run the same command again, nothing is lost; or set PREFECT_API_URL to a server of your own.",
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends it."""
        self._starting.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _take(lock: TextIO, made: Path) -> None:
    """Takes the lock, unless `made` exists; it is released when its file is closed or this process ends.

    Continues without it after a while: its owner is starting a server, and gives up after the same time.
    """
    until = time.monotonic() + PATIENCE_S
    while not made.exists() and time.monotonic() < until:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process holds the lock; or the file system has no locks
            time.sleep(0.1)


def server_if_needed() -> TemporaryServer | None:
    """Starts a temporary server unless the configured one answers; prints a line if that one is unreachable.

    Returns:
        The temporary server, or None if the configured one answers.
    """
    configured = PREFECT_API_URL.value()
    if not configured:
        return TemporaryServer()
    if is_there(configured):
        return None
    away = f"The Prefect server at {configured} (PREFECT_API_URL) does not answer: this goes on"
    err().print(f"{away} with a temporary one of its own, and will not be on its page.", style="yellow")
    return TemporaryServer()
