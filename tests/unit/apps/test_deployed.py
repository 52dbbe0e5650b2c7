"""The process of a deployment's run, from outside."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apps.process import DEFAULTS

ROOT = Path(__file__).resolve().parents[3]
HOLDING = """
import atexit, os, threading, time
import duckdb
atexit.register(lambda: print(os.environ["PREFECT_CLIENT_MAX_RETRIES"]))
kept = duckdb.sql("select 1")
threading.Thread(target=lambda kept=kept: time.sleep(1000), daemon=True).start()
from apps.deployed import main
main()
"""
SLEEPING = """
import time
from apps.process import heeded
with heeded():
    print("here", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_run_that_fails_lists_nothing_of_what_libraries_still_hold(tmp_path: Path) -> None:
    environ = {**os.environ, "PREFECT__FLOW_RUN_ID": "none", "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(tmp_path)}
    words = [sys.executable, "-c", HOLDING]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "Invalid flow run id" in done.stderr
    assert "leaked" not in done.stderr
    assert done.stdout.strip() == DEFAULTS["PREFECT_CLIENT_MAX_RETRIES"], (
        "what it tells a server that is away it gives up soon"
    )


def test_a_signal_ends_a_process_whose_reader_of_messages_is_gone() -> None:
    words = [sys.executable, "-c", SLEEPING]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stderr.close()
        process.terminate()
        try:
            assert process.wait(30) == 128 + signal.SIGTERM
        finally:
            process.kill()
