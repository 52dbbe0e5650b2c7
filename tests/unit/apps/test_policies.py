"""Export, and measuring as the command line prints it."""

from pathlib import Path
from typing import Any

import pytest

from apps.commands import policies
from apps.options import seed_range, task_names
from schemas.failure import CheckpointError, UsageError
from tasks.evaluate import Summary, TaskRate
from tasks.measure import Attempt, Measured
from tests.fixtures.sentences import Sentences


def test_export_copies_the_checkpoint_with_a_card_and_without_the_store_s_manifest(place: Any, tmp_path: Path) -> None:
    assert policies.export_policy(place.lake, "champion", tmp_path / "out") == "policy-0001"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", "config.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_export_fills_an_empty_folder(place: Any, tmp_path: Path) -> None:
    policies.export_policy(place.lake, "policy-0000", tmp_path)
    assert (tmp_path / "config.json").is_file()


def test_export_refuses_to_overwrite(place: Any, tmp_path: Path, sentence: Sentences) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with sentence.raises(UsageError):
        policies.export_policy(place.lake, "champion", tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "mine"


def test_a_measurement_names_tasks_as_they_are_asked_for(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = Summary(0.5, (0.4, 0.6), {"fake/click-target": TaskRate(0.5, 2, 0.5)})
    measured = Measured("policy-0001", rates, [Attempt("fake/click-target", 2_000_000, True, 0, 1)])
    monkeypatch.setattr(policies, "call", lambda *_: measured)
    found = policies.measure(place.config, "champion", ["click-target"], None)
    assert found.rates.tasks == {"click-target": TaskRate(0.5, 2, 0.5)}
    shown = policies.measured_as_json(found, 1, each=True)
    assert shown["plays"] == [("click-target", 2_000_000, True)]
    assert shown["trajectories"] == [{"task": "click-target", "seed": 2_000_000, "success": True}]
    assert set(policies.measured_as_json(found, 1, each=False)) == {
        "policy",
        "success",
        "ci",
        "tasks",
        "failed",
        "unread",
    }


def test_a_measurement_of_an_unknown_task_is_refused(place: Any) -> None:
    with pytest.raises(UsageError, match="no-such-task"):
        policies.measure(place.config, "champion", ["no-such-task"], None)


def test_what_is_no_model_is_refused_before_anything_starts(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "call", lambda *_: pytest.fail("started"))
    for folder, kind, said in (
        (tmp_path / "none", UsageError, "is not a directory"),
        (tmp_path, CheckpointError, "no weights"),
    ):
        with pytest.raises(kind, match=said):
            policies.adopt_policy(place.config, folder, None)


def test_task_names_and_seed_ranges_are_read_from_one_word() -> None:
    assert task_names("a, miniwob/b,c") == ["a", "miniwob/b", "c"]
    assert seed_range("2000000:2000050") == (2_000_000, 2_000_050)
    with pytest.raises(UsageError):
        task_names(",")
