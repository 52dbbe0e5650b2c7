"""Where what we print goes: a terminal's width counts there alone."""

import io
import json
import logging
import re
import sys

import pytest
from rich.table import Table
from rich.text import Text

from apps.commands.lineage import lineage_of, show_lineage
from apps.commands.status import show_status
from apps.options import print_json, print_line
from apps.process import complaint
from common import log
from schemas.failure import UsageError
from schemas.tables.stage import PlainResult
from tasks.running.console import bar, err, log_stage, now, out
from tests.unit.apps.conftest import Place


class Terminal(io.StringIO):
    """What a terminal gets."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")


def test_what_is_piped_is_neither_wrapped_nor_coloured_however_narrow_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out().print(f"[red]{'word ' * 60}[/red]")
    table = Table(box=None)
    table.add_column("name")
    table.add_row("cell " * 60)
    out().print(table)
    log_stage(3, "collect", 1.5, PlainResult(text="word " * 60))
    told = capsys.readouterr()
    assert told.out.count("\n") == 3 and told.err.count("\n") == 1
    assert "\x1b" not in told.out + told.err


def test_nothing_moves_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with bar() as progress:
        progress.update(progress.add_task("train", total=2, message=""), completed=2)
    assert capsys.readouterr() == ("", "") and not err().is_terminal


def test_every_iteration_is_one_line_of_status_and_every_policy_one_of_lineage(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    show_status(place.lake)
    show_lineage(lineage_of(place.lake, "champion"))
    lines = capsys.readouterr().out.splitlines()
    assert sum("policy-0001" in line and "promoted" in line for line in lines) == 1
    assert sum(line.startswith("checkpoint ") and line.endswith("checkpoints/policy-0001") for line in lines) == 1


HOSTILE = "\x1b]0;owned\x07 \x1b[2J\x9b31m \u202egnp.exe\u2066 \r fine"


def test_nothing_that_pages_or_models_wrote_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None)
    table.add_column("name")
    table.add_row(f"{HOSTILE} [/red]")
    for console in (out(), err()):
        console.print(table)
        console.print(f"{HOSTILE} [/red]")
    log_stage(3, "collect", 1.5, PlainResult(text=f"{HOSTILE} [/nothing] [link=http://evil]"))
    print_json({"text": HOSTILE})
    print_line(HOSTILE)
    sys.stderr.write(complaint(UsageError(f"There is no task {HOSTILE}")))
    told = capsys.readouterr()
    whole = told.out + told.err
    assert not re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066]", whole) and whole.count("fine") == 8
    assert whole.count("[/red]") == 4
    assert "[/nothing] [link=http://evil]" in told.err


def test_on_a_terminal_our_own_colours_stay_and_theirs_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    out().print(Text(f"ours {HOSTILE}", "red"), soft_wrap=True)
    assert out() is out() and "\x1b[31m" in terminal.getvalue()
    assert "\x1b]0;" not in terminal.getvalue() and r"\x1b]0;owned" in terminal.getvalue()


def test_a_terminal_shows_in_one_line_what_happens_and_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    with now("iteration 3", "train", lambda: 41.0), bar() as progress:
        progress.update(progress.add_task("train", total=2, message="[/what]"), completed=1)
        progress.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "iteration 3  train" in shown and "about 41 s, as the last time" in shown and "[/what]" in shown


def test_where_logs_are_json_every_line_on_standard_error_is_an_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLYWHEEL_LOG", "json")
    err().print("a warning\nof two lines", style="yellow")
    log_stage(3, "collect", 1.5, PlainResult(text="word", numbers={"trajectories": 7}))
    sys.stderr.write(complaint(UsageError("No such key.", "Write another.")) + "\n")
    record = logging.LogRecord("prefect.flow_runs", logging.WARNING, "", 1, "%s fails", ("x",), None)
    sys.stderr.write(log.JsonFormatter("default", None, "%").format(record) + "\n")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["level"] for line in lines] == ["info", "info", "error", "warning"]
    assert lines[0]["message"] == "a warning\nof two lines" and lines[3]["logger"] == "prefect.flow_runs"
    assert (lines[1]["stage"], lines[1]["seconds"], lines[1]["numbers"]["trajectories"]) == ("collect", 1.5, 7)
    assert (lines[2]["message"], lines[2]["hint"], lines[2]["exit_code"]) == ("No such key.", "Write another.", 2)


@pytest.mark.parametrize("columns", ["60", "80"])
def test_the_status_cuts_no_word_on_a_narrow_terminal(
    place: Place, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    show_status(place.lake)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "…" not in shown and max(map(len, shown.splitlines())) <= int(columns)
    for word in ("iteration", "policy-0001", "promoted", "running", "champion policy-0001", "95 %"):
        assert word in shown
    assert ("seconds" in shown) == (columns == "80")
