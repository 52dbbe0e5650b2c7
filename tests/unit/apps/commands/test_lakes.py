"""`flywheel diff LAKE LAKE`: two lakes by success, tasks, data, cost and config."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from apps.cli import make_app
from apps.commands.lakes import compare_lakes, is_lake
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture
def two(tmp_path: Path) -> tuple[Place, Place]:
    """Two equal lakes; in the second, the champion fails on the tasks `click-target`, and has another config."""
    for name in "ab":
        (tmp_path / name).mkdir()
    a, b = (make_place(tmp_path / name) for name in "ab")
    rows = b.lake.read("evaluations", where={"policy_version": "policy-0001"}).to_pylist()
    worse = [{**row, "success": False} for row in rows if row["task_id"] == "fake/click-target"]
    b.lake.upsert("evaluations", worse)
    (row,) = b.lake.read("policies", where={"policy_version": "policy-0001"}).to_pylist()
    changed = {**json.loads(row["config"]), "seed": 7}
    b.lake.upsert("policies", [{**row, "config": json.dumps(changed)}])
    (one,) = b.lake.read("trajectories").to_pylist()[:1]
    b.lake.append("trajectories", [{**one, "trajectory_id": "more"}])
    return a, b


def run(place: Place, *words: str) -> Result:
    return CliRunner().invoke(make_app(), ["diff", *words, "--config", str(place.file)])


def test_two_lakes_differ_by_success_tasks_data_and_config(two: tuple[Place, Place]) -> None:
    a, b = two
    found = compare_lakes(a.config, a.lake.uri, b.lake.uri)
    assert next(iter(found.tasks.items())) == ("fake/click-target", (0.75, 0.0))
    assert found.success.mean == pytest.approx(-0.25) and found.success.n == 24
    assert found.data == {"trajectories": (72, 73)} and found.config == {"seed": (0, 7)}
    whole = found.as_dict
    assert [point["a"]["success"] for point in whole["curve"]] == [0.5, 0.75, None]
    assert whole["cost"]["steps"][0] == whole["cost"]["steps"][1] > 0


def test_the_command_prints_both_and_its_json_has_all(two: tuple[Place, Place]) -> None:
    a, b = two
    shown = run(a, a.lake.uri, b.lake.uri)
    assert shown.exit_code == 0, shown.output
    assert "fake/click-target" in shown.output and "over 24 pairs" in shown.output
    found = json.loads(run(a, a.lake.uri, b.lake.uri, "--json").output)
    assert set(found) == {"a", "b", "success", "curve", "tasks", "data", "cost", "config"}
    assert run(a, a.lake.uri, b.lake.uri, "--task", "click-target").exit_code != 0


def test_a_name_that_is_no_lake_is_refused(two: tuple[Place, Place], sentence: Sentences) -> None:
    a, _ = two
    assert is_lake("s3://bucket/lake") and is_lake(a.lake.uri) and not is_lake("policy-0001")
    with sentence.raises(UsageError, "`policy-0001` is no lake"):
        compare_lakes(a.config, a.lake.uri, "policy-0001")
