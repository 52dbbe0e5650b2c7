"""One small iteration over games and web tasks together: scores between 0 and 1 from the sandbox to the report."""

from pathlib import Path

import polars as pl
import pytest

from flows.flywheel import flywheel
from flywheel import OpenLake
from schemas.config import config_of
from schemas.tables.evaluation import Evaluation
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import Verdict
from storage.lake import Lake
from tasks.shared.policies import champion
from tests.flows.conftest import wheel


@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_games_and_web_tasks_turn_together_and_scores_reach_the_lake_and_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = wheel(tmp_path, monkeypatch).model_dump()
    small["environments"] = {one: {"browsers": 1, "pages": 2} for one in ("miniwob", "games")}
    small["suite"] = {"tasks": ["click-test", "mines-1"], "max_steps": {"mines-1": 8}}
    config = config_of(small)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    known = {one.task_id: one for one in lake.rows(GuiTask)}
    assert (known["games/mines-1"].threshold, known["games/mines-1"].graded) == (0.8, True)
    assert (known["miniwob/click-test"].threshold, known["miniwob/click-test"].graded) == (1.0, False)
    rows = lake.rows(Trajectory)
    assert {row.task_id for row in rows} == set(known)
    assert not any(row.failure_boundary in ("sandbox", "verifier") for row in rows)
    scores = {row.reward for row in rows if row.task_id.startswith("games/") and row.reward is not None}
    assert len(scores) > 2 and all(0.0 <= score <= 1.0 for score in scores)
    for row in rows:
        if row.success is not None and row.failure_boundary is None:
            assert row.success == ((row.reward or 0.0) >= known[row.task_id].threshold)
    answer = {row.reason for row in lake.rows(Verdict, {"gate": "verifier"})}
    assert any("with raw reward 0." in reason for reason in answer)
    shown = OpenLake(lake).by_task().filter(pl.col("iteration").is_null(), pl.col("task_id") == "games/mines-1")
    explored = [
        row for row in lake.rows(Evaluation, {"task_id": "games/mines-1"}) if row.policy_version == "explorer-5"
    ]
    mean = sum(row.reward or 0.0 for row in explored) / len(explored)
    assert shown["reward"].item() == pytest.approx(mean)
    assert champion(lake) is not None
