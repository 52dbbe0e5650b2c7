"""Ends Prefect's temporary server where the process that started it was killed outright and could not.

Prefect starts the server as a child and ends it in an exit handler. So a second process waits on a pipe that closes
with the first, however that ends, and then ends the server that carries the first one's mark in its environment.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import psutil

MARK = "FLYWHEEL_STARTED_BY"
SERVER = "prefect.server.api.server:create_app"
"""What a temporary server is told to serve."""


@contextlib.contextmanager
def leash() -> Iterator[None]:
    """While it lasts, a temporary server that is started does not outlive this process."""
    os.environ[MARK] = str(os.getpid())
    command = [sys.executable, "-I", __file__, os.environ[MARK]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as waiting:
        try:
            yield
        finally:
            waiting.kill()


def main(mark: str) -> None:
    """Waits for the end of standard input, then ends the servers with this mark."""
    sys.stdin.buffer.read()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if SERVER in process.cmdline() and process.environ().get(MARK) == mark:
                process.kill()


if __name__ == "__main__":
    main(sys.argv[1])
