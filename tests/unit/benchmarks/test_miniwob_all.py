"""`benchmarks.miniwob_all` and the learning curve of a lake."""

from typing import Any

import pytest

from benchmarks.learning_curve import CurvePoint, learning_chart, learning_curve
from benchmarks.miniwob_all import bars, published, task_rows, total_row
from benchmarks.miniwob_all import main as measure
from curation.intervals import Interval
from environments.catalog import catalog
from environments.miniwob.browsergym import MAX_STEPS, BrowserGymEnvironment
from environments.miniwob.environment import PRACTICE, MiniwobConfig, catalog_entries
from schemas.config import load_config
from schemas.failure import UsageError
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.evaluate import Summary, TaskRate
from tasks.measure import Attempt, Measured
from tasks.running.curve import svg
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import DEFAULTS

SOLVED = {"miniwob-all/a": TaskRate(1.0, 4, 1.0), "miniwob-all/b": TaskRate(0.0, 4, 0.0)}
MEASURED = Measured(
    "explorer-5",
    Summary(0.5, (0.3, 0.7), SOLVED, {"sandbox": 1}),
    [Attempt("miniwob-all/a", 2_000_000, True, 0, 3)] * 9,
)


def test_the_profile_has_the_125_tasks_of_browsergym_with_its_step_limit() -> None:
    tasks = catalog(load_config("miniwob-all", [], {}))
    measured = [task for task in tasks if task.split == "train"]
    entries = BrowserGymEnvironment("miniwob-all", MiniwobConfig()).entries
    assert {task.template for task in measured} == set(entries) - {PRACTICE}
    assert (len(measured), {task.max_steps for task in measured}) == (125, {MAX_STEPS})
    assert len(set(catalog_entries()) - set(entries)) == 5


def test_published_rows_have_the_interval_of_one_episode_a_task() -> None:
    best, *others = published().rows()
    assert (best["policy"], best["success"], best["n"]) == ("Claude Opus 5", 0.912, 125)
    assert (best["low"], best["high"]) == pytest.approx((0.849, 0.950), abs=1e-3)
    assert {row["policy"]: row["success"] for row in others}["UI-TARS-1.5-7B"] == 0.184


def test_rows_have_success_cost_and_tasks_and_bars_depend_on_the_policy() -> None:
    row = total_row("explorer", MEASURED, processor_s=18.0)
    assert (row["policy"], row["trajectories"], row["steps"], row["failed"]) == ("explorer (explorer-5)", 9, 27, 1)
    assert (row["tasks without a success"], row["processor hours"]) == (1, 0.005)
    assert [(one["task"], one["success"]) for one in task_rows(MEASURED.rates)] == [("a", 1.0), ("b", 0.0)]
    assert [bar.bar for bar in bars("explorer", MEASURED)] < [bar.bar for bar in bars("champion", MEASURED)]
    assert not bars("champion", MEASURED)[1].ok  # one of nine trajectories failed


def test_seeds_that_decide_about_promotion_are_refused(sentence: Sentences) -> None:
    with sentence.raises(UsageError):
        measure(["--first-seed", str(SPLIT_STARTS["validation"])])


@pytest.fixture
def grown(tmp_path: Any) -> Lake:
    """Iterations of 1,500 and 700 trajectories; the second candidate is not promoted, the third is."""
    config = load_config("miniwob-all", [f"lake.uri={tmp_path / 'lake'}"], {})
    lake = Lake.open(config.lake)
    for iteration, status, collected, wins in ((-1, "retired", 0, 0), (0, "retired", 1500, 1), (1, "rejected", 700, 4),
                                               (2, "champion", 700, 3)):  # fmt: skip
        name, kind = f"p{iteration}", "initial" if iteration < 0 else "iteration"
        lake.append("policies", [DEFAULTS["policies"] | {"policy_version": name, "kind": kind, "iteration": iteration,
                                                         "status": status}])  # fmt: skip
        about = {"iteration": iteration}
        named = (about | {"trajectory_id": f"{iteration}-{number}"} for number in range(collected))
        lake.append("trajectories", [DEFAULTS["trajectories"] | one for one in named])
        made = DEFAULTS["evaluations"] | about | {"policy_version": name}
        lake.append("evaluations", [made | {"seed": 1_000_000 + at, "success": at < wins} for at in range(4)])
    return lake


def test_the_curve_has_the_champion_after_every_thousand_trajectories(grown: Lake) -> None:
    points = learning_curve(grown)
    assert [(one.trajectories, one.policy, one.success) for one in points] == [
        (0, "p-1", 0.0), (1000, "p-1", 0.0), (2000, "p0", 0.25), (3000, "p2", 0.75),
    ]  # fmt: skip
    assert all(one.low <= one.success <= one.high and one.n == 4 for one in points)


def test_the_curve_takes_another_measurement_and_is_drawn(grown: Lake) -> None:
    on_test_seeds = {"p-1": Interval(0.1, 0.0, 0.2, 8), "p2": Interval(0.5, 0.4, 0.6, 8)}
    points = learning_curve(grown, on_test_seeds.get, every=500)
    assert [one.trajectories for one in points if one.policy == "p-1"] == [0, 500, 1000, 1500, 2000, 2500]
    assert points[-1] == CurvePoint(3000, "p2", 0.5, 0.4, 0.6, 8)
    chart = learning_chart(points)
    assert chart is not None and "<svg" in svg(chart) and learning_chart([]) is None
