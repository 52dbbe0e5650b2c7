"""What the command line makes of errors that a flow raises."""

import subprocess

import pytest
from prefect.server.api.server import SubprocessASGIServer

from apps.calling import call
from schemas.failure import FlywheelError


def test_a_server_of_prefect_that_dies_while_it_starts_is_named_with_a_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atexit.register", lambda stop: stop)  # there is no server to stop when the tests end
    monkeypatch.setattr(SubprocessASGIServer, "_run_uvicorn_command", lambda self: subprocess.Popen(["false"]))
    with pytest.raises(FlywheelError, match=r"temporary server did not start.*exited with code 1.*PREFECT_API_URL"):
        call(lambda: SubprocessASGIServer(port=9).start(timeout=1))


def test_another_error_stays_what_it_is() -> None:
    def fail() -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match=r"^something else$"):
        call(fail)
