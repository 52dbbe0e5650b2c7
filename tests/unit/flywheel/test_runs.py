"""Running iterations from Python: messages, results and errors of the run's own process."""

import json
import sys
from pathlib import Path

import pytest

import flywheel
from flywheel import runs
from schemas.failure import FlywheelError, LakeError, Paused
from tests.unit.apps.conftest import Place, make_place

CHILD = """
import json, os, sys
assert os.environ["FLYWHEEL_LOG"] == "json" and "--json" in sys.argv
print(json.dumps({"message": "collect: 8 trajectories"}), file=sys.stderr)
print("a library's warning", file=sys.stderr)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


def child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Runs this code in place of the command."""
    monkeypatch.setattr(runs, "COMMAND", (sys.executable, "-c", CHILD + code))


def test_a_run_returns_what_it_finished_and_prints_its_messages(
    made: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "'rest': 'x' * 200_000"  # more than a pipe holds
    child(monkeypatch, f"print(json.dumps({{'report': '/tmp/page.html', {more}}}))")
    done = flywheel.run(made.file, ["train.steps=3"], iterations=2)
    assert (done.iterations, done.champion, done.report) == ([], "policy-0001", Path("/tmp/page.html"))
    assert done.lake.uri == made.lake.uri
    assert capsys.readouterr().err == "collect: 8 trajectories\na library's warning\n"


@pytest.mark.parametrize(("name", "kind", "status"), [("Paused", Paused, 4), ("LakeError", LakeError, 1)])
def test_an_error_of_the_run_is_raised_as_what_it_is(
    made: Place, monkeypatch: pytest.MonkeyPatch, name: str, kind: type[FlywheelError], status: int
) -> None:
    fields = {"message": "It stopped.", "error": name, "hint": "Go on.", "exit_code": status}
    child(monkeypatch, f"print({json.dumps(fields)!r}, file=sys.stderr); sys.exit({status})")
    with pytest.raises(kind) as raised:
        flywheel.run(made.file)
    assert (raised.value.problem, raised.value.hint) == ("It stopped.", "Go on.")


def test_a_run_that_is_killed_is_an_error(made: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(FlywheelError, match="-9"):
        flywheel.run(made.file)
