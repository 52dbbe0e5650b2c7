"""`flywheel serve-osworld` as a process of its own."""

import os
import signal
import subprocess
import sys

import httpx
import pytest

from tests.command import Call
from tests.desktops import ON_OSWORLD_S
from tests.fixtures.solutions import left_behind, processes

COMMAND = [sys.executable, "-m", "apps.cli", "serve-osworld"]
WITHOUT = {name: value for name, value in os.environ.items() if name != "FLYWHEEL_OSWORLD_TOKEN"}


@pytest.mark.slow
@ON_OSWORLD_S
def test_it_says_where_it_listens_and_a_signal_ends_it_with_its_desktop() -> None:
    server = subprocess.Popen(
        [*COMMAND, "--port", "0", "--task", "make-folders", "--seed", "2"], stdout=subprocess.PIPE, text=True,
        env={**WITHOUT, "COLUMNS": "200"},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        name, url = server.stdout.readline().split()
        assert name == "osworld"
        assert httpx.get(f"{url}/screenshot", timeout=30).content.startswith(b"\x89PNG")
        assert httpx.get(f"{url}/flywheel/outcome").json() == {"done": False, "reward": 0.0}
        pids = [one.pid for one in processes(server.pid)]
        assert len(pids) > 4
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    finally:
        server.kill()
        server.wait()
    assert left_behind(pids) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--task", "no-such"], "--task"),
        (["--task", "make-folders", "--open", "xterm"], "--open"),
        (["--open", "no-such-program --now"], "--open"),
        (["--open", "xterm 'half"], "--open"),
        (["--host", "0.0.0.0"], "FLYWHEEL_OSWORLD_TOKEN"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name_before_anything_starts(
    given: list[str], named: str, flywheel: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYWHEEL_OSWORLD_TOKEN", raising=False)
    code, _, errors = flywheel("serve-osworld", *given)
    assert code == 2 and named in errors
