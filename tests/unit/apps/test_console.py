"""Where what we print goes: a terminal's width counts there alone."""

import pytest
from rich.table import Table

from apps.commands.lineage import lineage_of, show_lineage
from apps.commands.status import show_status
from tasks.shared.console import bar, err, out, say_stage
from tests.unit.apps.conftest import Place


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
    say_stage(3, "collect", 1.5, {"say": "word " * 60})
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
