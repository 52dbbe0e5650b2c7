"""`flywheel quality`: what failed is shown with its trajectories, and taken on only with a reason that is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps import cli, process
from apps.quality.gather import quality_of
from apps.quality.page import render
from schemas.failure import GateRefused, UsageError
from schemas.tables import TABLES
from schemas.tables.quality import QualityResult
from storage.lake import Lake
from tasks.overrides import override_failures
from tasks.quality import examine, passed, verify_quality
from tasks.running.run import Run
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A lake to change, whose iteration 1 has a trajectory of an impossible reward."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    (row, *_) = place.lake.read("trajectories", where={"iteration": 1}).to_pylist()
    place.lake.append("trajectories", [{**row, "trajectory_id": "<b>bad</b>", "reward": 7.0, "n_steps": 0}])
    return place


def flywheel(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Any, str, str]:
    monkeypatch.setattr("sys.argv", ["flywheel", *words])
    monkeypatch.setattr(process, "ignore", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def results(lake: Lake) -> list[QualityResult]:
    return lake.rows(QualityResult, {"iteration": 1, "table": "trajectories", "success": False, "severity": "critical"})


@pytest.mark.slow
def test_a_refused_iteration_goes_on_with_a_written_reason_and_is_refused_again_when_it_gets_worse(
    own: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    run = Run(own.config, own.lake, "run")
    checked = lambda: examine(run, 1, ["trajectories"], whole=False)  # noqa: E731
    with sentence.raises(GateRefused, hint="flywheel quality override --reason ... 1"):
        passed(run, 1, checked())
    with pytest.raises(UsageError, match="needs a reason"):
        override_failures(own.lake, 1, "  ", "ada")
    config = ("--config", str(own.file))

    code, out, _ = flywheel(
        capsys, monkeypatch, "quality", "override", "1", "--reason", "known [bold]bug", "--by", "ada", *config
    )
    assert code == 0
    sentence(out)
    numbers = passed(run, 1, checked())
    assert numbers.overridden == 1 and "1 critical failure overridden" in str(numbers)
    with sentence.raises(UsageError, hint="flywheel quality"):
        override_failures(own.lake, 1, "again", "ada")

    for verb in (("quality",), ("status",), ("report",)):
        code, out, _ = flywheel(capsys, monkeypatch, *verb, *config)
        assert code == 0
        text = Path(out.strip()).read_text() if verb == ("report",) else out
        assert "known [bold]bug" in text and "<b>bad</b>" not in (text if verb == ("report",) else "")
    code, out, _ = flywheel(capsys, monkeypatch, "status", "--json", *config)
    (kept,) = json.loads(out)["overridden"]
    assert (kept["person"], kept["reason"], kept["unexpected"]) == ("ada", "known [bold]bug", 1)

    (row,) = own.lake.read("trajectories", where={"trajectory_id": "<b>bad</b>"}).to_pylist()
    own.lake.append("trajectories", [{**row, "trajectory_id": "worse"}])
    with pytest.raises(GateRefused, match="2 rows"):
        passed(run, 1, checked())


def test_an_override_of_rows_that_training_cannot_read_is_refused(own: Place, sentence: Sentences) -> None:
    run = Run(own.config, own.lake, "run")
    shot = own.lake.read("steps", ["screenshot"], {"iteration": 0})["screenshot"][0].as_py()
    own.lake.delete("screenshots", f"sha256 = '{shot}'")
    with pytest.raises(GateRefused):
        passed(run, 0, examine(run, 0, ["steps"], whole=False))
    with sentence.raises(UsageError, shot, shot=shot):
        override_failures(own.lake, 0, "it is only one", "ada")
    assert not own.lake.count("quality_overrides")
    (row, *_) = own.lake.read("steps", where={"iteration": 1}).to_pylist()
    own.lake.append("steps", [{**row, "trajectory_id": "orphan"}])
    examine(run, 1, ["trajectories"], whole=False)
    with sentence.raises(UsageError, "orphan"):
        override_failures(own.lake, 1, "it is only one", "ada")


def test_failures_name_their_trajectories(
    own: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    run = Run(own.config, own.lake, "run")
    (shot,) = own.lake.read("screenshots", where={"iteration": 0}).to_pylist()
    own.lake.upsert("screenshots", [{**shot, "width": 0}])
    examine(run, 0, ["screenshots"], whole=False)
    examine(run, 1, ["trajectories"], whole=False)
    code, out, _ = flywheel(capsys, monkeypatch, "quality", "--json", "--config", str(own.file))
    found = json.loads(out)
    assert code == 0 and set(found) == {"lake", "checked", "older", "iterations", "results"}
    by = {(row["table"], row["iteration"], row["expectation"]): row for row in found["results"]}
    assert by["trajectories", 1, "ExpectColumnValuesToBeBetween(reward)"]["trajectories"] == ["<b>bad</b>"]
    (shown,) = by["screenshots", 0, "ExpectColumnValuesToBeBetween(width)"]["trajectories"]
    assert own.lake.count("trajectories", {"trajectory_id": shown, "iteration": 0}) == 1
    assert {row["iteration"]: row["critical"] for row in found["iterations"]} == {2: 0, 1: 1, 0: 1}

    code, out, _ = flywheel(capsys, monkeypatch, "quality", "--iteration", "1", "--json", "--config", str(own.file))
    assert {row["iteration"] for row in json.loads(out)["results"]} == {1}
    code, _, err = flywheel(capsys, monkeypatch, "quality", "--iteration", "7", "--config", str(own.file))
    assert code == 2
    sentence(err)


def test_the_page_is_one_file_without_scripts_that_links_trajectories_and_shows_hostile_text_as_text(
    own: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    examine(Run(own.config, own.lake, "run"), 1, ["trajectories"])
    override_failures(own.lake, 1, "<script>alert(1)</script>", "<i>ada</i>")
    code, out, _ = flywheel(capsys, monkeypatch, "quality", "--page", "--config", str(own.file))
    text = Path(out.strip()).read_text()
    assert code == 0 and "Drift(lengths)" not in text
    assert "default-src 'none'; style-src 'unsafe-inline'" in text and "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "overridden by &lt;i&gt;ada&lt;/i&gt;" in text
    assert 'href="http://127.0.0.1:8750/trajectory/%3Cb%3Ebad%3C/b%3E">&lt;b&gt;bad' in text
    assert text.count("http") == text.count("http://127.0.0.1:8750") + text.count("http-equiv")


def test_a_thousand_iterations_are_shown_a_hundred_at_a_time(own: Place) -> None:
    base = own.lake.rows(QualityResult, {"iteration": 1})[0]
    rows = [base.model_copy(update={"iteration": at, "success": at % 2 == 0}) for at in range(10, 260)]
    own.lake.append("quality", rows)
    found = quality_of(own.lake, None)
    assert [row.iteration for row in found.iterations] == list(range(259, 159, -1))
    assert (found.checked, found.older, len(found.results)) == (253, 160, 50)
    older = quality_of(own.lake, None, found.older)
    assert older.iterations[0].iteration == 159
    assert len(render(own.config, found)) < 200_000


def test_a_check_looks_at_every_table_of_the_latest_iteration_or_of_the_one_that_is_named(
    own: Place, sentence: Sentences
) -> None:
    own.lake.delete("trajectories", "trajectory_id = '<b>bad</b>'")
    done = verify_quality.fn(own.config, None)
    assert done.iteration == 2 and str(done).startswith(f"{done.expectations} expectations, ")
    checked = own.lake.read("quality", ["table"], {"iteration": 2})["table"].to_pylist()
    assert set(checked) >= set(TABLES)
    with sentence.raises(UsageError):
        verify_quality.fn(own.config, 9)
