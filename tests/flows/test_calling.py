"""A flow called from the command line says what went wrong once."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from apps.schedule.processes import SERVE
from tasks.running.run_page import answers
from tests.prefect_home import prefect_home
from tests.tiers import NIGHTLY

ROOT = Path(__file__).parents[2]
REFUSING = """
from prefect import flow
from schemas.failure import FlywheelError
from tasks.running.boundary import flow_task

@flow_task("refuse")
def refuse() -> None:
    raise FlywheelError("The lamp is broken.", "Change it.")

@flow
def refusing() -> None:
    refuse()

@flow_task("stumble")
def stumble() -> None:
    raise ValueError("a bug")

@flow
def stumbling() -> None:
    stumble()
"""
CALLER = """
from apps.process import settle
settle()
from apps.calling import call
from schemas.failure import FlywheelError
try:
    call("refusing.refusing")
except FlywheelError as error:
    print(error)
try:
    call("refusing.stumbling")
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [True, False])
def test_an_error_is_shown_by_its_caller_alone(tmp_path: Path, recorded: bool) -> None:
    (tmp_path / "refusing.py").write_text(REFUSING)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    environ["PREFECT_API_URL"] = str(PREFECT_API_URL.value()) if recorded else ""
    done = subprocess.run(
        [sys.executable, "-c", CALLER],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.stdout == "The lamp is broken. Change it.\na bug\n", done.stderr
    assert "Traceback" not in done.stderr and "lamp" not in done.stderr and "a bug" not in done.stderr


LOSING = """
import os, signal, time
from prefect import flow
from schemas.failure import FlywheelError
from tasks.running.boundary import flow_task
from tasks.running.run_page import emit_event
from tasks.running.run_page import log, show_iteration

@flow_task("lose")
def lose() -> None:
    if server := os.environ.get("SERVER"):
        os.kill(int(server), signal.SIGKILL)
        time.sleep(1)

@flow_task("go-on")
def go_on(number: int) -> int:
    emit_event("flywheel.train.completed", {"prefect.resource.id": "flywheel.lake.x"})
    log("a line")
    show_iteration(0, [{"stage": "train"}], "<svg/>")
    return number + 1

@flow
def losing(fails: bool) -> int:
    number = go_on(0)
    lose()
    for _ in range(3):
        number = go_on(number)
        time.sleep(1)
    if fails:
        raise FlywheelError("The lamp is broken.", "Change it.")
    return number
"""
ENDS = [((), "4\n"), (("fails",), "The lamp is broken. Change it.\n")]
"""What the flow is asked, and what it then says."""
LOSER = """
from apps.process import leave, settle
settle()
import sys
from apps.calling import call
from schemas.failure import FlywheelError
try:
    print(call("losing.losing", bool(sys.argv[1:])))
except FlywheelError as error:
    print(error)
leave(0)
"""


def lose(tmp_path: Path, *words: str, **environ: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """A flow called where the server is away or goes away, and the seconds that it took."""
    (tmp_path / "losing.py").write_text(LOSING)
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LOSER, *words],
        cwd=tmp_path, env={**kept, **path, **environ}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return done, time.monotonic() - begun


@pytest.mark.nightly  # one that goes away meanwhile always runs
def test_a_flow_goes_on_without_a_server_where_the_configured_one_is_unreachable(tmp_path: Path) -> None:
    done, _ = lose(tmp_path, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    assert "http://127.0.0.1:9/api (PREFECT_API_URL) does not answer" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("words", "said"), ENDS if NIGHTLY else ENDS[:1])
def test_a_flow_whose_server_goes_away_ends_as_it_would_have_and_soon(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    own = {**os.environ, "PREFECT_HOME": str(tmp_path / "server"), "PYTHONPATH": str(ROOT)}
    prefect_home(tmp_path / "server")
    url = f"http://127.0.0.1:{port}/api"
    server = subprocess.Popen(
        [sys.executable, "-m", *SERVE, "--port", port, "--log-level", "error"],
        env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while not answers(url) and time.monotonic() < until:
            time.sleep(0.2)
        done, took = lose(tmp_path, *words, PREFECT_API_URL=url, SERVER=str(server.pid))
    finally:
        server.kill()
        server.wait()
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Starting ")]
    assert len(lines) == 1 and "became unreachable" in lines[0]
    assert took < 60
