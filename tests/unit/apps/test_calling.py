"""What the command line makes of errors that a flow raises."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from apps.calling import call
from apps.server import _take


@pytest.mark.nightly
def test_a_server_of_prefect_that_dies_while_it_starts_is_named_with_a_hint(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    environ |= {"PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_DATABASE_CONNECTION_URL": "nonsense"}
    code = "from apps.calling import call; call('builtins.int', '1')"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert "FlywheelError: Prefect's temporary server did not start (exit" in done.stderr
    assert str(tmp_path / "server.log") in done.stderr and "PREFECT_API_URL" in done.stderr


@pytest.mark.nightly
def test_of_first_runs_in_one_new_folder_none_dies_of_the_other(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    environ |= {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    words = [sys.executable, "-c", "from apps.calling import call; print(call('builtins.int', '7'))"]
    runs = [subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [run.communicate()[0] for run in runs] == ["7\n", "7\n"]


def test_a_lock_is_waited_for_until_the_database_is_made(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        _take(first, made)
        waiting = threading.Thread(target=_take, args=(second, made), daemon=True)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        made.touch()
        waiting.join(5)
        assert not waiting.is_alive()


def test_another_error_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.server.is_there", lambda _: True)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}), pytest.raises(ValueError, match="else"):
        call("builtins.int", "something else")
