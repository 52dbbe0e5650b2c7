"""A flow called from the command line says what went wrong once."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFUSING = """
from prefect import flow, task
from schemas.failure import FlywheelError

@task
def refuse() -> None:
    raise FlywheelError("The lamp is broken.", "Change it.")

@flow
def refusing() -> None:
    refuse()
"""
CALLER = """
from apps.environment import settle
settle()
from apps.calling import call
from schemas.failure import FlywheelError
try:
    call("refusing.refusing")
except FlywheelError as error:
    print(error)
"""


def test_an_error_that_a_person_can_put_right_is_shown_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "refusing.py").write_text(REFUSING)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", CALLER],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.stdout == "The lamp is broken. Change it.\n", done.stderr
    assert "Traceback" not in done.stderr and "lamp" not in done.stderr
