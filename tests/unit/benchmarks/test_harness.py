"""The file that every benchmark writes, and its comparison with the stored results."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.harness import Bar, add_options, finish
from benchmarks.results import BenchmarkResult, MeasuredRun, MeasuredValue, read, regressions

RUN: dict[str, Any] = {"command": "python -m benchmarks.x", "date": "2026-11-01", "commit": None, "machine": "a laptop"}


def options(*words: str) -> argparse.Namespace:
    return add_options(argparse.ArgumentParser()).parse_args(words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "docs" / "results")
    monkeypatch.setattr("benchmarks.harness.RESULTS", tmp_path / "docs" / "results")
    return tmp_path / "docs" / "results"


def stored(*values: MeasuredValue) -> None:
    results.write(BenchmarkResult(benchmark="x", title="X", runs=(MeasuredRun(**RUN, values=values),)))


def test_the_file_has_machine_rows_and_bars_and_is_strict_json(tmp_path: Path):
    bars = [Bar("a", 2.0, 1.0, "higher"), Bar("b", math.nan, 1.0, "lower")]
    path = tmp_path / "x.json"
    assert (
        finish("x", [{"arm": "one", "s": math.inf}, {"arm": "two", "s": 1.5}], bars, options("--json", str(path))) == 1
    )
    found = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert set(found) == {"machine", "rows", "bars"}
    assert found["rows"] == [{"arm": "one", "s": None}, {"arm": "two", "s": 1.5}]
    assert [(bar["value"], bar["ok"]) for bar in found["bars"]] == [(2.0, True), (None, False)]


def test_all_bars_met_is_status_zero():
    assert finish("x", [{"s": 1}], [Bar("a", 1.0, 1.0, "lower")], options()) == 0


@pytest.mark.parametrize(
    ("better", "now", "flagged"),
    [("higher", 95.1, False), ("higher", 94.9, True), ("lower", 104.9, False), ("lower", 105.1, True),
     ("lower", math.nan, True)],
)  # fmt: skip
def test_a_value_that_is_more_than_five_per_cent_worse_is_a_regression(
    folder: Path, better: Any, now: float, flagged: bool
):
    stored(MeasuredValue(name="a", value=100.0, better=better))
    values = [MeasuredValue(name="a", value=now, better=better), MeasuredValue(name="new", value=1.0)]
    found = regressions("x", values, short=False)
    assert [one.name for one in found] == ["a"] * flagged


def test_a_regression_fails_a_run_that_asks_for_the_comparison(folder: Path, capsys: pytest.CaptureFixture[str]):
    stored(MeasuredValue(name="a", value=100.0, better="higher"))
    bars = [Bar("a", 90.0, 50.0, "higher")]
    assert finish("x", [], bars, options()) == 0
    assert finish("x", [], bars, options("--against")) == 1
    assert "WORSE: a: 90" in capsys.readouterr().out
    assert finish("new", [], bars, options("--against")) == 0
    assert finish("x", [], bars, options("--against", "--short")) == 0, "a short run has other numbers"


def test_a_recorded_run_takes_the_place_of_the_same_command(folder: Path, monkeypatch: pytest.MonkeyPatch):
    stored(MeasuredValue(name="a", value=100.0, better="higher"))
    monkeypatch.setattr(
        "sys.argv", [str(results.ROOT / "benchmarks" / "x.py"), "--short", "--record", "--json", "a.json"]
    )
    for value in (1.0, 2.0):
        finish("x", [], [Bar("a", value, 0.5, "higher")], options("--record"))
    first, second = read(folder / "x.json").runs
    assert (first.command, first.values[0].value) == ("python -m benchmarks.x --short", 2.0)
    assert first.machine and first.date and second.values[0].value == 100.0


def test_every_stored_result_has_its_name_and_the_page_is_made_from_them():
    files = sorted(results.RESULTS.glob("*.json"))
    assert len(files) > 20
    for path in files:
        assert results.path_of(read(path).benchmark) == path
    assert results.main(["--check"]) == 0, "run `python -m benchmarks.results`"
