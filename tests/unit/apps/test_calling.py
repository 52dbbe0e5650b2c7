"""What the command line makes of errors that a flow raises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from apps.calling import call


def test_a_server_of_prefect_that_dies_while_it_starts_is_named_with_a_hint(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    environ |= {"PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_DATABASE_CONNECTION_URL": "nonsense"}
    code = "from apps.calling import call; call('builtins.int', '1')"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert "FlywheelError: Prefect's temporary server did not start (exit" in done.stderr
    assert str(tmp_path / "server.log") in done.stderr and "PREFECT_API_URL" in done.stderr


def test_another_error_stays_what_it_is() -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}), pytest.raises(ValueError, match="else"):
        call("builtins.int", "something else")
