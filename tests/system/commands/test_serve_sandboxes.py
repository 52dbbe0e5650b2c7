"""`flywheel serve-sandboxes` as a process of its own, and MiniWoB++ played through it."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from environments.openenv.client import ServerLost
from environments.openenv.wire import BlockingClient
from tests.command import Call

COMMAND = [sys.executable, "-m", "apps.cli", "serve-sandboxes"]


@pytest.fixture(autouse=True)
def _in_a_folder_without_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_it_says_where_it_listens_serves_real_pages_and_ends_by_a_signal() -> None:
    given = ["--port", "0", "--tasks", "click-test,enter-text", "environments.miniwob.browsers=1"]
    process = subprocess.Popen([*COMMAND, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        word, url, *what = process.stdout.readline().split()
        assert (word, " ".join(what)) == ("sandboxes", "2 tasks, 4 sessions")
        client = BlockingClient(url)
        first = client.reset(task_id="click-test", seed=3, elements=True)
        assert (first.observation["width"], first.observation["height"]) == (160, 210)
        assert client.reset(task_id="click-test", seed=3, elements=True).observation == first.observation
        _, _, (left, top, right, bottom), _, _ = next(
            one for one in first.observation["elements"] if one[1] == "button"
        )
        last = client.step({"type": "click", "x": (left + right) / 2, "y": (top + bottom) / 2})
        assert (last.reward, last.done) == (1.0, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
        assert process.stderr is not None
        assert process.stderr.read() == (
            "flywheel: ended by SIGTERM; the sessions are over, and their sandboxes are given back; "
            "the same command serves them again.\n"
        )
        with pytest.raises(ServerLost):
            client.reset(task_id="click-test", seed=3)
        client.close()
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["--host", "0.0.0.0"], 2, "`--host`: others can reach 0.0.0.0, and FLYWHEEL_SANDBOXES_TOKEN holds no token."),
        (["--token-variable", "NO_TOKEN"], 2, "`--token-variable`: NO_TOKEN holds no token."),
        (["--tasks", "click-tset"], 2, "`--tasks`: there is no task `click-tset`. Did you mean `click-test`?"),
        (["environments.miniwob.browser=/nowhere"], 1, "/nowhere"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_line(given: list[str], code: int, message: str, flywheel: Call) -> None:
    ended, _, errors = flywheel("serve-sandboxes", "--port", "0", *given)
    assert ended == code
    assert message in errors and errors.count("\n") == 1


def test_a_port_that_is_taken_is_named(flywheel: Call) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, errors = flywheel("serve-sandboxes", "--port", port)
    assert (code, errors.count("\n")) == (1, 1)
    assert f"`--port`: cannot listen at 127.0.0.1, port {port}" in errors


def test_what_this_machine_lacks_for_a_served_task_is_told_before_anybody_comes(
    no_bubblewrap: None, flywheel: Call
) -> None:
    given = ["--port", "0", "--tasks", "files-open", "environments.hybrid.optional=false"]
    code, output, errors = flywheel("serve-sandboxes", *given)
    assert (code, output) == (1, "")
    assert "bubblewrap" in errors and "Traceback" not in errors
