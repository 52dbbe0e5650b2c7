"""Where no terminal shows it, a command prints what begins and how far it has come, on standard error alone."""

import sys
import time
from collections.abc import Iterator

import pytest

from common import log
from schemas.tables.stage import PlainResult
from tasks.running import progress_lines as lines
from tasks.running.console import bar, log_stage
from tasks.running.progress_lines import Pace, progress_lines
from tasks.running.run_status import CURRENT, RunStatus
from tests.fixtures.sentences import Sentences

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lines, "FIRST_S", 0.0)
    monkeypatch.setattr(lines, "EVERY_S", 0.05)
    yield
    CURRENT.leave()


def test_a_run_without_a_terminal_says_what_begins_and_how_far_it_is(capsys: Printed, sentence: Sentences) -> None:
    with progress_lines("Resuming iteration 2 after curriculum"):
        CURRENT.enter("run", 2, "collect")
        with bar() as progress:
            shown = progress.add_task("collect", total=996, message="")
            progress.update(shown, completed=216)
            time.sleep(0.3)
    written = capsys.readouterr()
    printed = written.err.splitlines()
    sentence(printed[0])
    assert printed[1].startswith("iteration 2  collect: 216 of 996")
    assert written.out == ""


def test_a_quiet_command_prints_no_progress_and_a_verbose_one_more(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed(volume: str) -> list[str]:
        monkeypatch.setenv(log.VOLUME, volume)
        with progress_lines("Starting"):
            CURRENT.enter("run", 0, "train")
            log_stage(0, "collect", 1.0, PlainResult(text="24 trajectories", numbers={}))
            for step in range(4):
                CURRENT.progress("train", step, 4)
                time.sleep(0.1)
        return capsys.readouterr().err.splitlines()

    monkeypatch.setattr(lines, "EVERY_S", 60.0)
    monkeypatch.setattr(lines, "VERBOSE_S", 0.05)
    assert printed("quiet") == []
    assert len(printed("normal")) == 2
    assert len(printed("verbose")) > 3


def test_a_terminal_gets_no_such_lines(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_lines("Starting"):
        CURRENT.enter("run", 0, "train")
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_command_that_is_over_at_once_says_nothing(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "FIRST_S", 60.0)
    with progress_lines("Starting"), progress_lines("Starting again"):
        pass
    assert capsys.readouterr().err == ""


def test_a_block_within_another_adds_no_lines_of_its_own(capsys: Printed) -> None:
    with progress_lines("Starting"), progress_lines("Starting again"):
        time.sleep(0.1)
    assert capsys.readouterr().err.splitlines() == ["Starting"]


def test_the_time_left_is_that_of_the_pace_since_it_was_seen(sentence: Sentences) -> None:
    """A resumed stage begins with what an earlier process has done, which says nothing about the pace."""
    pace = Pace()
    now = RunStatus(iteration=0, stage="collect", label="collect", since=90.0, heard=100.0, done=216, total=996)
    sentence(pace.line(now))
    later = now.model_copy(update={"heard": 160.0, "done": 296})
    sentence(pace.line(later))
    trained = RunStatus(iteration=0, stage="train", since=100.0, heard=220.0)
    sentence(pace.line(trained))
    assert pace.line(RunStatus(iteration=0, heard=230.0)) == ""
