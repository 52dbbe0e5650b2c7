"""A page starts one retraining at a time, as a process of its own."""

import sys
import time
from pathlib import Path

import pytest

from apps.desk.retraining import Retraining, RetrainingStatus
from schemas.config import load_config
from schemas.failure import Paused, UsageError
from tasks.running.budget import pause
from tests.unit.apps.conftest import Place, make_place

SHOWS = (
    *(sys.executable, "-c"),
    "import sys, time; print(*sys.argv[1:], file=sys.stderr); time.sleep(0.5); sys.exit('no data')",
)
MAKES = (sys.executable, "-c", """print('{"policy": "retrained-0000"}')""")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


def ended(one: Retraining) -> RetrainingStatus:
    end = time.monotonic() + 30
    while (found := one.status()).running:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_it_runs_the_command_with_the_servers_config_and_shows_how_it_ended(own: Place) -> None:
    one = Retraining(own.config, own.lake, SHOWS)
    assert one.status().code is None and not one.status().running and one.status().lines == []
    assert one.start("policy-0001").running
    with pytest.raises(UsageError, match="is active"):
        one.start(None)
    found = ended(one)
    assert found.code == 1 and found.lines[-1] == "no data"
    words = found.lines[0].split()
    assert words[-2:] == ["--like", "policy-0001"]
    assert load_config(Path(words[words.index("--config") + 1]), [], {}).canonical() == own.config.canonical()
    assert one.start(None).running and "--like" not in ended(one).lines[0]


def test_an_unknown_policy_and_a_pause_are_refused_before_it_starts(own: Place) -> None:
    one = Retraining(own.config, own.lake, SHOWS)
    with pytest.raises(UsageError, match="no policy `nobody`"):
        one.start("nobody")
    pause(own.lake, "tests", "Ada")
    with pytest.raises(Paused):
        one.start(None)
    assert not one.status().running and one.status().lines == []


def test_its_end_names_the_policy_that_it_made(own: Place) -> None:
    one = Retraining(own.config, own.lake, MAKES)
    assert one.status().policy is None
    one.start(None)
    found = ended(one)
    assert (found.code, found.policy) == (0, "retrained-0000")
    failed = Retraining(own.config, own.lake, SHOWS)
    failed.start(None)
    assert ended(failed).policy is None
