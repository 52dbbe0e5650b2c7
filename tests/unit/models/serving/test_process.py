"""A server that the flywheel starts: waited for, watched, started anew, and ended with all that it started."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from models.serving.process import ServerProcess, require_program
from schemas.config.policy import ServerConfig
from schemas.failure import FlywheelError
from tests.fixtures.sentences import Sentences
from tests.processes import left

SERVER = """
import http.server, subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(sys.argv[2], "a").write(f"{sys.argv[3]} {child.pid}\\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"data": []}')
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A server with a process of its own session below it, as engines have."""


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    script = tmp_path / "serve.py"
    script.write_text(SERVER)
    command = f"{sys.executable} {script} {{port}} {tmp_path / 'started'} {{checkpoint}}"
    return ServerConfig(command=command, start_timeout_s=30.0)


def children(tmp_path: Path) -> list[int]:
    return [int(line.split()[-1]) for line in (tmp_path / "started").read_text().splitlines()]


def test_it_is_waited_for_keeps_its_port_and_ends_with_all_that_it_started(
    config: ServerConfig, tmp_path: Path
) -> None:
    server = ServerProcess(config, tmp_path / "log")
    assert not server.alive
    server.start(tmp_path / "a b")
    assert server.alive and httpx.get(f"{server.url}/models").status_code == 200
    server.start(tmp_path / "two")
    assert httpx.get(f"{server.url}/models").status_code == 200
    server.stop()
    assert not server.alive and left(children(tmp_path)) == []
    said = (tmp_path / "started").read_text().splitlines()
    assert [line.rpartition(" ")[0] for line in said] == [str(tmp_path / "a b"), str(tmp_path / "two")]


def test_a_server_that_cannot_list_models_and_is_well_is_ready(config: ServerConfig, tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(SERVER.replace("send_response(200)", 'send_response(500 if "models" in self.path else 200)'))
    server = ServerProcess(config, tmp_path / "log")
    server.start(tmp_path / "one")
    assert httpx.get(f"{server.url}/models").status_code == 500
    server.stop()


def test_nothing_is_left_when_who_started_it_is_killed_outright(config: ServerConfig, tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from models.serving.process import ServerProcess\n"
        "from schemas.config.policy import ServerConfig\n"
        "server = ServerProcess(ServerConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))\n"
        "server.start(Path('/x')); print(server._process.process.pid, flush=True); time.sleep(600)\n"
    )
    given = [config.model_dump_json(), str(tmp_path / "log")]
    with subprocess.Popen([sys.executable, "-c", program, *given], stdout=subprocess.PIPE, text=True) as flow:
        assert flow.stdout is not None
        keeper = psutil.Process(int(flow.stdout.readline()))
        everything = [keeper.pid, *(one.pid for one in keeper.children(recursive=True)), *children(tmp_path)]
        assert len(set(everything)) == 3
        flow.send_signal(signal.SIGKILL)
    assert left(everything) == []


def test_one_that_ends_is_noticed(config: ServerConfig, tmp_path: Path) -> None:
    server = ServerProcess(config, tmp_path / "log")
    server.start(tmp_path)
    assert server._process is not None  # pyright: ignore[reportPrivateUsage]
    (program, *_) = psutil.Process(server._process.process.pid).children()  # pyright: ignore[reportPrivateUsage]
    os.kill(program.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while server.alive and time.monotonic() < end:
        time.sleep(0.05)
    assert not server.alive and left(children(tmp_path)) == []


def test_one_that_does_not_start_is_an_error_that_quotes_its_log(tmp_path: Path, sentence: Sentences) -> None:
    config = ServerConfig(command=f"{sys.executable} -c \"raise SystemExit('no memory {{port}}')\"")
    with sentence.raises(FlywheelError, "policy.server.command", PROCESS=re.compile(r"(?<=memory )\d+")):
        ServerProcess(config, tmp_path / "log").start(tmp_path)


def test_a_program_that_is_not_there_is_known_before_anything_is_spent() -> None:
    assert require_program(ServerConfig(command="ls {port}")).endswith("ls")
    with pytest.raises(FlywheelError, match="no program 'nobody-serves'"):
        require_program(ServerConfig(command="nobody-serves --port {port}"))
