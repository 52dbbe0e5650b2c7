"""An iteration over questions and a task that the explorer solves: no unanswered question is a sandbox's failure."""

from pathlib import Path

import pytest

from flows.flywheel import flywheel
from schemas.config import config_of
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tests.flows.conftest import wheel


@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_an_iteration_over_questions_and_clicks_keeps_every_trajectory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = wheel(tmp_path, monkeypatch).model_dump()
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    search = {"browsers": 1, "pages": 2, "width": 320, "height": 240}
    small["environments"] = {"fake": {"sandboxes": 2}, "search": search}
    tasks = ["search-chain"]
    small["suite"] = {"tasks": ["click-target", *tasks], "held_out": [], "max_steps": dict.fromkeys(tasks, 3)}
    config = config_of(small)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    assert {one.verifier for one in lake.rows(GuiTask) if one.environment == "search"} == {"search"}
    rows = [row for row in lake.rows(Trajectory) if row.task_id.startswith("search/")]
    assert {row.task_id for row in rows} == {f"search/{task}" for task in tasks}
    assert not any(row.failure_boundary in ("sandbox", "verifier") for row in rows)
    assert {row.reward for row in rows} == {0.0}
    assert all("Search the encyclopedia, and finish with" in row.instruction for row in rows)
    assert any(row.success for row in lake.rows(Trajectory))
