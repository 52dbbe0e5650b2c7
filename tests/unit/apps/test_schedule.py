"""`flywheel schedule` and `up` where there is no server, or one that does not answer."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apps.schedule.processes import ServiceProcess
from schemas.failure import FlywheelError

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("words", "api", "said"),
    [
        (["schedule", "list"], "", "No Prefect server is configured, and none runs here. `flywheel up` starts one"),
        pytest.param(
            ["schedule", "run", "retrain"],
            "http://127.0.0.1:9/api",
            "at http://127.0.0.1:9/api does not answer",
            marks=pytest.mark.nightly,
        ),
        (["up"], "http://127.0.0.1:9/api", "at http://127.0.0.1:9/api does not answer"),
    ],
)
@pytest.mark.slow
def test_what_to_do_is_said_in_one_line_and_nothing_is_started(
    tmp_path: Path, words: list[str], api: str, said: str
) -> None:
    (tmp_path / "flywheel.toml").write_text('[environments.fake]\n[suite]\ntasks = ["two-steps"]\n')
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environ |= {"PREFECT_API_URL": api} if api else {}
    command = [sys.executable, "-m", "apps.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / ".flywheel" / "up.json").exists() and not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "The server was ended by SIGKILL ({log})."),
        (
            "os.kill(os.getpid(), signal.SIGRTMIN + 1)",
            f"The server was ended by signal {signal.SIGRTMIN + 1} ({{log}}).",
        ),
        ("sys.exit(3)", "The server ended with status 3: an old warning ({log})."),
    ],
)
def test_a_part_that_ended_is_named_with_its_last_line_unless_a_signal_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, said: str
) -> None:
    (tmp_path / "ending.py").write_text(f"import os, signal, sys\nprint('an old warning', flush=True)\n{end}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    part = ServiceProcess("server", ["ending"], tmp_path / "log")
    part.process.wait(timeout=60)
    with pytest.raises(FlywheelError) as raised:
        part.check()
    assert str(raised.value) == said.format(log=tmp_path / "log")
