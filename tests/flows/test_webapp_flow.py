"""An iteration over a suite of two kinds: a web application of our own, and the fake sandbox."""

from pathlib import Path

import pytest

from flows.flywheel import flywheel
from schemas.config import Config, config_of
from storage.lake import Lake

APPS = Path(__file__).parents[1] / "webapps"


@pytest.mark.nightly  # tests/flows/test_games_flow.py mixes kinds too; tests/system/pages/test_webapp.py plays these
def test_a_web_application_and_the_fake_sandbox_turn_in_one_wheel(small: Config):
    web = {
        "kind": "webapp", "folder": str(APPS), "tasks": [str(APPS / "notes.toml")], "browsers": 1, "pages": 2,
        "width": 640, "height": 360,
    }  # fmt: skip
    given = small.model_dump() | {
        "iterations": 1,
        "environments": {"fake": {"sandboxes": 2}, "web": web},
        "suite": {"tasks": ["click-target", "notes-tick"], "held_out": [], "max_steps": {"notes-tick": 3}},
    }
    config = config_of(given)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    rows = lake.read("trajectories", ["task_id", "failure_boundary", "instruction", "reward"]).to_pylist()
    web_rows = [row for row in rows if row["task_id"] == "web/notes-tick"]
    assert web_rows and any(row["task_id"] == "fake/click-target" for row in rows)
    assert not [row for row in web_rows if row["failure_boundary"] == "sandbox"]
    assert {row["instruction"] for row in web_rows} <= {'Tick "Water the fern" off.', 'Tick "Call Ada" off.'}
    assert {row["reward"] for row in web_rows} <= {0.0, 1.0}
    assert (
        lake.read("tasks", ["task_id", "verifier"])
        .to_pylist()
        .count({"task_id": "web/notes-tick", "verifier": "webapp"})
        == 1
    )
