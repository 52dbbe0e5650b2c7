"""What changed between two data versions, as a person and a program are told it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.commands.difference import show_difference
from flywheel.difference import difference_of
from schemas.failure import LakeError, UsageError
from storage.lake import Lake
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


def relabel(lake: Lake, iteration: int) -> list[str]:
    """A newer run of the filter turns an iteration's successes away."""
    rows = lake.read("verdicts", where={"iteration": iteration, "route": "sft"}).to_pylist()
    later = datetime(2026, 2, 1, tzinfo=UTC)
    lake.append("verdicts", [{**row, "gate_version": "2", "route": "ct", "created_at": later} for row in rows])
    return sorted(row["trajectory_id"] for row in rows)


def test_two_policies_differ_by_what_was_collected_between_them(place: Any) -> None:
    found = difference_of(place.lake, "policy-0000", "policy-0001")
    assert found.found.rows["trajectories"] == (24, 48)
    assert found.tasks == {"added": [], "removed": []} and found.flips == []
    family = found.families["fake"]
    assert (family.a.trajectories, family.b.trajectories, family.shift) == (24, 48, 0.0)
    assert found.policies is not None and found.policies.config == {}
    assert found.policies.both("parent") == ("policy-initial", "policy-0000")
    success = found.policies.success
    assert success.mean == pytest.approx(0.25) and success.n == 16 and success.low < 0.25
    assert set(found.as_dict["policies"]) == {"parent", "method", "code", "seed", "config", "success"}


def test_labels_that_flipped_are_counted_and_named_and_a_new_judge_is_told(own: Place) -> None:
    lake = own.lake
    flipped = relabel(lake, 0)
    one = lake.read("verdicts", where={"trajectory_id": flipped[0], "gate_version": "1"}).to_pylist()[0]
    lake.append("verdicts", [{**one, "gate": "judge", "gate_version": "strict-2"}])
    found = difference_of(lake, "policy-0001", "now")
    (flip,) = found.flips
    assert (flip.was, flip.now, flip.n) == ("sft", "ct", len(flipped))
    assert flip.examples == flipped[:10]
    assert found.found.judges == {"strict-2": (0, 1)} and "policies" not in found.as_dict
    assert "curriculum" not in found.found.rows  # no policy pins it, so nothing is known of it then


def test_added_tasks_are_named_and_success_shifts_by_family(own: Place) -> None:
    lake = own.lake
    row = lake.read("trajectories", where={"iteration": 1, "success": False}).to_pylist()[0]
    lake.append("trajectories", [{**row, "trajectory_id": f"n{n}", "task_id": "fake/new"} for n in range(24)])
    found = difference_of(lake, "champion", "now")
    assert found.tasks["added"] == ["fake/new"]
    assert found.families["fake"].shift < 0
    new = found.as_dict["by_task"]["fake/new"]
    assert new.a.success is None and new.shift is None


def test_a_moment_names_the_data_there_was_then(place: Any) -> None:
    then, now = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC)
    found = difference_of(place.lake, then.isoformat(), now.isoformat())
    assert found.pins == ({}, place.lake.versions())
    assert found.found.rows["trajectories"][0] == 0 < found.found.rows["trajectories"][1]


def test_what_names_nothing_is_refused_with_what_there_is(place: Any, sentence: Sentences) -> None:
    with sentence.raises(UsageError, "policy-9", hint="policy-0001"):
        difference_of(place.lake, "policy-9", "now")


def test_a_version_whose_files_are_gone_is_named(own: Place, sentence: Sentences) -> None:
    lake = own.lake
    lake.compact("trajectories")
    policies = lake.read("policies").to_pylist()
    lake.upsert("policies", [{**row, "data_versions": json.dumps({"trajectories": 1})} for row in policies])
    for file in (Path(lake.uri) / "tables" / "trajectories").rglob("*.parquet"):
        file.unlink()
    with sentence.raises(LakeError, "policy-0001"):
        difference_of(lake, "policy-0001", "champion")


def test_people_are_told_what_changed(own: Place, capsys: pytest.CaptureFixture[str], sentence: Sentences) -> None:
    relabel(own.lake, 0)
    show_difference(difference_of(own.lake, "policy-0000", "policy-0001"))
    show_difference(difference_of(own.lake, "policy-0001", "now"))
    said = capsys.readouterr().out
    assert "trajectories          24        48  +24" in said and "success        +0.250" in said
    sentence.lines(said, "sft", "ct")
