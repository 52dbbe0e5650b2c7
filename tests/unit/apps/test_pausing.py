"""`flywheel pause`, `resume`, and what the other verbs say of a paused lake."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apps.commands.status import show_status, status_of
from tasks.running.budget import FILE, pause, pause_of
from tasks.running.run_status import RunStatus, file_of, run_statuses
from tasks.shared.lease import Owner, iteration_lock
from tests.command import Call
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


def test_a_pause_says_who_and_why_holds_runs_and_retrainings_back_and_ends(
    own: Place, flywheel: Call, sentence: Sentences
) -> None:
    code, out, _ = flywheel("pause", "--reason", "too many dragons", "--by", "ann", "--config", own.file)
    assert code == 0
    sentence(out)
    for verb in ("run", "retrain"):
        code, out, err = flywheel(verb, "--config", own.file)
        assert (code, out) == (4, "") and err.count("\n") == 1
        assert "paused since" in err and "`flywheel resume`" in err
        sentence(err)
    code, out, _ = flywheel("status", "--json", "--config", own.file)
    assert json.loads(out)["paused"]["by"] == "ann"
    assert "too many dragons" in flywheel("status", "--config", own.file)[1]
    assert json.loads(flywheel("resume", "--json", "--config", own.file)[1]) == {"resumed": True}
    sentence(flywheel("resume", "--config", own.file)[1])
    assert pause_of(own.lake) is None


def test_a_pause_without_a_reason_is_refused_and_a_broken_one_can_be_ended(own: Place, flywheel: Call) -> None:
    assert flywheel("pause", "--config", own.file)[0] == 2
    code, _, err = flywheel("pause", "--reason", " ", "--config", own.file)
    assert code == 2 and "--reason" in err
    own.lake.blobs.store.put(FILE, b"{")
    code, _, err = flywheel("status", "--config", own.file)
    assert code == 1 and "flywheel resume" in err
    assert flywheel("resume", "--config", own.file)[0] == 0
    assert flywheel("status", "--config", own.file)[0] == 0


def test_status_says_what_happens_now(
    own: Place, capsys: pytest.CaptureFixture[str], flywheel: Call, sentence: Sentences
) -> None:
    show_status(own.lake)
    sentence.lines(capsys.readouterr().out, "running")
    with iteration_lock(own.lake):
        show_status(own.lake)
    out = capsys.readouterr().out
    sentence.lines(out, "collect", SECONDS=re.compile(r"\d{4,}(?= s,)"))
    moment = RunStatus(iteration=2, stage="collect", since=time.time() - 50, heard=time.time(), done=30, total=40)
    own.lake.blobs.store.put(file_of("wheel"), moment.model_dump_json().encode())
    pause(own.lake, "we look", "ann")
    show_status(own.lake)
    out = capsys.readouterr().out
    sentence.lines(out, "ann")
    sentence.lines(out, "collect")
    beside = RunStatus(
        run_id="b", flow="retrain", stage="train", since=time.time() - 5, heard=time.time(), done=1, total=2
    )
    own.lake.blobs.store.put(file_of("beside"), beside.model_dump_json().encode())
    show_status(own.lake)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" for ")[0] for line in lines if line.startswith("now ")] == [
        "now collect",
        "now retrain: train",
    ]
    code, _, err = flywheel("status", "--watch", "--config", own.file)
    assert code == 2 and "terminal" in err
    assert flywheel("status", "--watch", "--json", "--config", own.file)[0] == 2


def test_status_reports_a_process_that_died_and_not_its_last_status(
    own: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = Owner.this(process=ended.pid, ticks=1)
    about = {"iteration": 2, "stage": "train", "host": "here", "process": ended.pid, "owner": dead}
    moment = RunStatus(run_id="a", since=time.time() - 9, heard=time.time() - 2, done=1, total=2, **about)
    own.lake.blobs.store.put(file_of("a"), moment.model_dump_json().encode())
    assert run_statuses(own.lake) == []
    current = status_of(own.lake)["current"]
    assert current["running"] is False and current["ended"]["process"] == ended.pid
    assert current["ended"]["stage"] == "train"
    show_status(own.lake)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"no iteration is running: process {ended.pid} of here ended during train, " in printed
    assert printed.endswith("`flywheel run` continues the iteration")

    alive = RunStatus(run_id="b", iteration=2, stage="collect", heard=time.time(), owner=Owner.this())
    own.lake.blobs.store.put(file_of("b"), alive.model_dump_json().encode())
    assert status_of(own.lake)["current"]["stage"] == "collect"  # the resumed run, although the dead one was heard too
    show_status(own.lake)
    assert "now collect" in (out := capsys.readouterr().out) and "ended" not in out
