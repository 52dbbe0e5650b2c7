"""Start processes that end with this process in any case: a signal, an error, a kill. One is Prefect's server.

The server imports this module, so it imports nothing heavy.
"""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.process import ChildProcess, ours
from schemas.failure import FlywheelError

if TYPE_CHECKING:
    from starlette.middleware.trustedhost import TrustedHostMiddleware

PATIENCE_S = 120.0
GRACE_S = 9.0
"""Seconds that a part and its runs have to end in order."""
HOST = "127.0.0.1"
SERVE = ("uvicorn", "--app-dir", str(Path(__file__).parents[2]), "--factory", "--lifespan", "on")
SERVE += ("apps.schedule.processes:create_app",)
"""The module that serves Prefect, in one process, and its arguments."""


def create_app() -> "TrustedHostMiddleware":
    """Makes Prefect's server for uvicorn, which answers only under this machine's own host names.

    It has no authentication. Otherwise a browser on this machine could reach it under another site's name that points
    at this machine (DNS rebinding), and pages of that site would have the server's origin.
    """
    from prefect.server.api.server import create_app as create_prefect
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return TrustedHostMiddleware(create_prefect(), (HOST, "localhost"), www_redirect=False)


class ServiceProcess(ChildProcess):
    """A process that runs as long as this process; its output goes to a file."""

    def __init__(self, name: str, module: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.name = name
        super().__init__([sys.executable, "-m", *module], log, {**ours(), **(environ or {})}, GRACE_S)

    def require_ready(self, ready: Callable[[], bool]) -> None:
        """Waits until the process is ready.

        Raises:
            FlywheelError: the process ended (as in `check`), or was not ready within two minutes.
        """
        if not self.wait(ready, PATIENCE_S):
            self.check()
            raise FlywheelError(f"The {self.name} did not start within {PATIENCE_S:.0f} s ({self.log}).")

    def check(self) -> None:
        """Raises FlywheelError if the process has ended; the message quotes its last line, or names the signal."""
        if (status := self.status) is None:
            return
        if status < 0:  # its last output does not explain a signal
            named = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
            raise FlywheelError(f"The {self.name} was ended by {named} ({self.log}).")
        last = (self.log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        raise FlywheelError(f"The {self.name} ended with status {status}: {last} ({self.log}).")
