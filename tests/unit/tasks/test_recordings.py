"""Trajectories get recordings with their screens and times, and questions about changes over time."""

import hashlib
from typing import Any

import pytest

from common.picture import png_of
from curation.annotation import TrajectoryRoute
from schemas.action import Click, Type, to_json
from schemas.config import Config, config_of
from schemas.observation import Element, elements_json
from schemas.table import utc_now
from storage.lake import Lake
from tasks.recordings import video_annotations
from tests.unit.curation.films import HIGH, WIDE, screen
from tests.unit.storage.conftest import DEFAULTS

SCREENS = [png_of(screen()), png_of(screen("blue")), png_of(screen("blue", "green"))]
NAMES = [hashlib.sha256(png).hexdigest() for png in SCREENS]
FIELD = Element("Name", "text field", (0.1, 0.1, 0.4, 0.2), True)
LISTED = [[FIELD], [Element("Name", "text field", FIELD.box, True, "Ada")]]
DECIDED = {
    name: TrajectoryRoute(True, route, "ok", None) for name, route in (("a", "sft"), ("b", "ct"), ("q", "quarantine"))
}  # type: ignore[arg-type]


def config(tmp_path: Any, **video: Any) -> Config:
    return config_of({
        "lake": {"uri": str(tmp_path / "lake")}, "environments": {"fake": {}}, "suite": {"tasks": ["click-one"]},
        "video": {"trajectories": 5, **video},
    })  # fmt: skip


@pytest.fixture
def lake(tmp_path: Any) -> Lake:
    lake = Lake.open(config(tmp_path).lake)
    for name, png in zip(NAMES, SCREENS, strict=True):
        lake.append("screenshots", [{**DEFAULTS["screenshots"], "sha256": name, "png": png}])
    for one in DECIDED:
        lake.append("trajectories", [{**DEFAULTS["trajectories"], "trajectory_id": one, "n_steps": 2}])
        actions = [Click(x=0.1, y=0.1), Type(content="Ada")]
        lake.append("steps", [
            {
                **DEFAULTS["steps"], "trajectory_id": one, "step": at, "screenshot": NAMES[at],
                "next_screenshot": NAMES[at + 1], "screen_width": WIDE, "screen_height": HIGH,
                "actions": [to_json(action)], "elements": elements_json(LISTED[at]), "observe_ms": 500.0,
                "think_ms": 1000.0, "act_ms": 2000.0,
            }
            for at, action in enumerate(actions)
        ])  # fmt: skip
    return lake


def test_used_trajectories_are_recorded_with_the_times_of_their_steps(lake: Lake, tmp_path: Any) -> None:
    made = video_annotations(config(tmp_path), lake, 1, DECIDED, utc_now())
    rows = {row["trajectory_id"]: row for row in lake.read("recordings").to_pylist()}
    assert set(rows) == {"a", "b"} == {one.trajectory_id for one in made}
    row = rows["a"]
    assert row["times"] == [0.0, 3.5, 7.0] and row["frames"] == NAMES and row["step_times"] == [1.5, 5.0]
    assert (row["seconds"], row["width"], row["source"]) == (7.5, WIDE, "")
    answers = {one.thought for one in made if one.trajectory_id == "a"}
    assert 'A click in the upper left, then the text "Ada" typed.' in answers
    lake.append("annotations", made)
    assert lake.count("annotations", {"kind": "video"}) == len(made)


def test_a_repeated_stage_makes_the_same_rows(lake: Lake, tmp_path: Any) -> None:
    one, again = (video_annotations(config(tmp_path), lake, 1, DECIDED, utc_now()) for _ in range(2))
    assert [row.annotation_id for row in one] == [row.annotation_id for row in again]
    assert lake.count("recordings") == 2


def test_by_default_and_without_questions_no_trajectory_is_recorded(lake: Lake, tmp_path: Any) -> None:
    for given in ({"trajectories": 0}, {"questions": 0}):
        assert video_annotations(config(tmp_path, **given), lake, 1, DECIDED, utc_now()) == []
    assert lake.count("recordings") == 0


def test_a_trajectory_with_screens_of_several_sizes_has_no_recording(lake: Lake, tmp_path: Any) -> None:
    lake.upsert("steps", [
        {**row, "screen_width": 9} for row in lake.read("steps", where={"trajectory_id": "a", "step": 1}).to_pylist()
    ])  # fmt: skip
    video_annotations(config(tmp_path), lake, 1, DECIDED, utc_now())
    assert lake.read("recordings", ["trajectory_id"])["trajectory_id"].to_pylist() == ["b"]
