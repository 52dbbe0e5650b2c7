"""`flywheel diff` of two lakes, and of two runs, by success, tasks, data, cost and config."""

import json
from pathlib import Path
from statistics import mean

import polars as pl
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from apps.cli import make_app
from apps.commands.status import show_status, status_of
from apps.commands.task_lineage import lineage_of_task
from apps.desk.app import make_app as make_site
from apps.report.gather import gather
from flywheel.comparison import HistoryComparison, Side, compare_lakes, compare_runs, is_lake
from flywheel.difference import difference_of
from flywheel.lake import OpenLake
from schemas.config.operations import BudgetConfig
from schemas.failure import UsageError
from storage.catalog import ask
from storage.lake import Lake
from tasks.running.budget import Spent
from tasks.shared.runs import run_named, runs_of
from tasks.shared.status import EvaluationOutcome, outcomes_of, quoted_by_task, success_of
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
    assert found.success.mean == pytest.approx(-0.375) and found.success.n == 16
    assert found.data == {"trajectories": (72, 73)} and found.config == {"seed": (0, 7)}
    whole = found.as_dict
    assert [point["a"]["success"] for point in whole["curve"]] == [0.5, 0.75, None]
    assert whole["cost"]["steps"][0] == whole["cost"]["steps"][1] > 0


def test_the_command_prints_both_and_its_json_has_all(two: tuple[Place, Place]) -> None:
    a, b = two
    shown = run(a, a.lake.uri, b.lake.uri)
    assert shown.exit_code == 0, shown.output
    assert "fake/click-target" in shown.output and "over 16 pairs" in shown.output
    found = json.loads(run(a, a.lake.uri, b.lake.uri, "--json").output)
    assert set(found) == {"a", "b", "success", "held_out", "curve", "tasks", "data", "cost", "config"}
    assert run(a, a.lake.uri, b.lake.uri, "--task", "click-target").exit_code != 0


def test_a_name_that_is_no_lake_is_refused(two: tuple[Place, Place], sentence: Sentences) -> None:
    a, _ = two
    assert is_lake("s3://bucket/lake") and is_lake(a.lake.uri) and not is_lake("policy-0001")
    with sentence.raises(UsageError, "`policy-0001` is no lake"):
        compare_lakes(a.config, a.lake.uri, "policy-0001")


FIRST, SECOND = "1f4e6fe7-37c9-452c-84a5-e6c45d000000", "2b7c1a90-0000-4000-8000-000000000000"


@pytest.fixture
def runs(tmp_path: Path) -> Place:
    """A lake of two runs: iteration 0, and iterations 1 and 2, which the first run began."""
    place = make_place(tmp_path)
    rows = place.lake.read("stages").to_pylist()
    own = [{**row, "run_id": FIRST if row["iteration"] < 1 or row["stage"] == "curriculum" else SECOND} for row in rows]
    own = [{**row, "run_id": SECOND} if row["iteration"] == 2 else row for row in own]
    place.lake.upsert("stages", own)
    return place


def test_an_iteration_is_of_the_run_that_recorded_its_newest_stage(runs: Place) -> None:
    first, second = runs_of(runs.lake)
    assert (first.run_id, first.iterations) == (FIRST, [-1, 0])
    assert (second.run_id, second.iterations) == (SECOND, [1, 2])
    assert run_named(runs.lake, SECOND[:8]) == second
    assert run_named(runs.lake, SECOND[:7]) is None and run_named(runs.lake, "policy-0001") is None


def test_two_runs_of_a_lake_differ_by_their_curves_tasks_data_and_cost(runs: Place) -> None:
    prices = BudgetConfig(hour_price=3600)
    found = compare_runs(runs.lake, prices, FIRST[:8], SECOND)
    assert (found.a.version, found.b.version) == ("policy-0000", "policy-0001")
    curve = [[one and one.iteration for one in pair] for pair in found.curve]
    assert curve == [[0, 1], [None, 2]]
    assert found.success.mean == pytest.approx(0.25) and found.success.n == 16
    assert found.tasks["fake/click-target"] == (0.5, 0.75)
    assert found.data["trajectories"] == (24, 48) and found.data["curriculum"] == (2, 4)
    seconds = [2.0 * runs.lake.count("stages", {"iteration": one}) for one in ([-1, 0], [1, 2])]
    assert found.cost["hours"] == pytest.approx([one / 3600 for one in seconds])
    assert found.cost["money"] == pytest.approx(seconds)


def test_the_command_compares_runs_by_the_beginnings_of_their_ids(runs: Place, sentence: Sentences) -> None:
    shown = run(runs, FIRST[:8], SECOND[:8])
    assert shown.exit_code == 0, shown.output
    assert "success, iteration 0 and 1" in shown.output and "policy-0001" in shown.output
    found = json.loads(run(runs, FIRST[:8], SECOND, "--json").output)
    assert found["a"] == {"name": FIRST, "policy": "policy-0000"} and found["tasks"]["fake/two-steps"] == [0.5, 0.75]
    assert run(runs, FIRST, SECOND, "--task", "click-target").exit_code != 0
    with sentence.raises(UsageError, "`policy-0001` is no run"):
        compare_runs(runs.lake, BudgetConfig(), FIRST, "policy-0001")


def test_status_lists_the_runs(runs: Place, capsys: pytest.CaptureFixture[str]) -> None:
    found = status_of(runs.lake)["runs"]
    assert [(one["run_id"], one["iterations"]) for one in found] == [(FIRST, [-1, 0]), (SECOND, [1, 2])]
    show_status(runs.lake)
    assert f"runs, with their iterations: {FIRST[:8]} (0); {SECOND[:8]} (1, 2)" in capsys.readouterr().out


def _measured_twice(lake: Lake) -> None:
    """Measure the last policy and the explorer on test seeds, too, with other outcomes, and policies on a made task."""
    rows = lake.read("evaluations").to_pylist()
    again = [row for row in rows if row["policy_version"] in {"policy-0001", "explorer-1"} and row["suite"] == "suite"]
    tested = [{**row, "seed": row["seed"] + 1_000_000, "success": row["seed"] % 4 == 0} for row in again]
    one = next(row for row in rows if row["policy_version"] == "policy-0001")
    made = [
        {**one, "policy_version": version, "suite": "synthesized", "task_id": "fake/made", "iteration": iteration,
         "seed": 1_000_000 + number, "success": number < won}
        for iteration, (version, won) in enumerate({"policy-0000": 2, "policy-0001": 7}.items())
        for number in range(8)
    ]  # fmt: skip
    lake.append("evaluations", tested + made)


def test_success_is_the_same_number_wherever_it_is_stated(runs: Place) -> None:
    lake = runs.lake
    _measured_twice(lake)
    with TestClient(make_site(runs.config, lake), "http://127.0.0.1:8750") as site:
        page = site.get(f"/runs?a={FIRST}&b={SECOND}").text
    compared, opened = compare_runs(lake, BudgetConfig(), FIRST, SECOND), OpenLake(lake)
    report = gather(runs.config, opened, runs.file.parent)
    by_task, curve = opened.by_task(), {row["policy"]: row for row in opened.curve().to_dicts()}
    made = 'fake/made</a></td><td class="n">0.250</td><td class="n">0.875</td>'
    assert made in page
    for side, expected, of_made in ((compared.a, 0.5, 0.25), (compared.b, 0.25, 0.875)):
        status = next(row for row in status_of(lake)["iterations"] if row["policy"] == side.version)
        assert status["success"] == curve[side.version]["success"] == expected
        assert status["synthesized"]["success"] == of_made == side.tasks["fake/made"]
        whole = success_of(lake, side.version)
        assert whole and whole.success == expected and whole.synthesized and whole.synthesized.success == of_made
        rows = by_task.filter(policy_version=side.version).to_dicts()
        assert {row["task_id"]: row["success"] for row in rows} == side.tasks
        assert mean(row["success"] for row in rows if row["suite"] == "suite") == expected
        assert f">{expected:.3f}</a>" in page
        counts = quoted_by_task(outcomes_of(lake, side.version)[side.version])
        assert {task: won / tried for task, (won, tried) in counts.items()} == side.tasks
        lineage = lineage_of_task(lake, "fake/made").success[side.version]
        assert lineage == counts["fake/made"]
    explored = by_task.filter(pl.col("policy_version").is_null())
    assert {row["success"] for row in explored.to_dicts()} == {0.25} == {report.iterations[-2].explorer}
    assert report.tasks["success"].to_list() == by_task["success"].to_list()
    assert report.success == success_of(lake, "policy-0001")


def test_policies_are_paired_on_validation_seeds_where_one_has_no_test_seeds(runs: Place) -> None:
    _measured_twice(runs.lake)
    found = compare_runs(runs.lake, BudgetConfig(), FIRST, SECOND)
    assert (found.success.mean, found.success.n) == (pytest.approx(0.25), 16)
    assert (found.others["synthesized"].mean, found.others["synthesized"].n) == (pytest.approx(0.625), 8)
    policies = difference_of(runs.lake, "policy-0000", "policy-0001").policies
    assert policies is not None and policies.success == found.success
    assert policies.families["fake"].n == 16 + 8 + 8
    shown = run(runs, FIRST, SECOND).output
    assert "On held-out tasks:" in shown and "On made tasks: +0.625" in shown
    worse = runs.lake.read("evaluations", where={"policy_version": "policy-0001"}).to_pylist()
    tested = [{**row, "policy_version": "policy-0000", "success": True} for row in worse if row["seed"] >= 2_000_000]
    runs.lake.append("evaluations", tested)
    found = compare_runs(runs.lake, BudgetConfig(), FIRST, SECOND)
    assert (found.success.mean, found.success.n) == (pytest.approx(-0.75), 16)


def test_the_rows_of_tasks_compare_the_same_seeds() -> None:
    """A has test seeds of both tasks; B has one of `t` alone, and validation seeds of both, on which they agree."""

    def side(actor: str, seeds: dict[tuple[str, int], bool]) -> Side:
        rows = [EvaluationOutcome(actor, "suite", task, seed, won, True) for (task, seed), won in seeds.items()]
        return Side(actor, None, rows, [], {}, Spent(steps=0, hours=0.0, tokens=0, money=0.0))

    lost = {(task, 1_000_000 + seed): False for task in "tu" for seed in range(4)}
    won = {(task, 2_000_000 + seed): True for task in "tu" for seed in range(4)}
    found = HistoryComparison(side("a", lost | won), side("b", lost | {("t", 2_000_000): True}))
    assert found.tasks == {"t": (1.0, 1.0), "u": (0.0, 0.0)}
    assert HistoryComparison(side("a", lost | won), side("b", {})).tasks == {"t": (0.5, None), "u": (0.5, None)}


def test_training_data_is_weighed_without_test_seeds(runs: Place) -> None:
    def weights() -> list[float]:
        asked = {
            "balance": 0.7, "floor": 0.15, "grounding_share": 0.15, "practice_share": 0.2, "practice": [],
            "measured": "policy-0001", "history_images": 1, "prefixes": "people", "corrections": "all",
        }  # fmt: skip
        return sorted(ask(runs.lake, "training_weights", **asked)["weight"].to_pylist())

    before = weights()
    tested = [
        {**row, "seed": row["seed"] + 1_000_000, "success": False}
        for row in runs.lake.read("evaluations", where={"policy_version": "policy-0001"}).to_pylist()
        if row["task_id"] == "fake/two-steps"
    ]
    runs.lake.append("evaluations", tested)
    assert before and weights() == before
