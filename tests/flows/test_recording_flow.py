"""Screen recordings become an iteration of their own: frames with times, and steps where there is an event log."""

from pathlib import Path

import pytest

from flows.data import import_data
from schemas.config import Config
from storage.lake import Lake
from tasks.exchange.importing import Request
from tests.unit.curation.films import film, log

pytest.importorskip("av", reason="the extra video: pip install 'flywheel[video]'")


@pytest.mark.slow
def test_a_folder_of_recordings_becomes_steps_and_frames_and_is_there_once_only(small: Config, tmp_path: Path) -> None:
    film(tmp_path / "in" / "logged.mp4")
    log(tmp_path / "in" / "logged.jsonl")
    film(tmp_path / "in" / "alone.webm", 50.0)
    request = Request(
        format="recording",
        path=tmp_path / "in",
        instruction="Say hi.",
        license="mit",
        demonstrations=True,
    )
    done = import_data(small, request)
    counts = [done[name] for name in ("trajectories", "steps", "recordings", "frames", "repeated", "already")]
    assert counts == [1, 4, 2, 8, 0, 0] and done["routes"]["sft"] == 1
    lake = Lake.open(small.lake)
    rows = {row["source"]: row for row in lake.read("recordings").to_pylist()}
    assert set(rows) == {"logged.mp4", "alone.webm"}
    (trajectory,) = lake.read("trajectories").to_pylist()
    assert rows["logged.mp4"]["trajectory_id"] == trajectory["trajectory_id"]
    assert rows["alone.webm"]["trajectory_id"] == rows["alone.webm"]["recording_id"]
    assert rows["logged.mp4"]["step_times"] == [5.0, 19.5, 30.0, 44.0] and rows["alone.webm"]["step_times"] == []
    for row in rows.values():
        assert [round(second, 1) for second in row["times"]] == [0.0, 5.2, 20.0, 45.0]
        assert lake.count("screenshots", {"sha256": row["frames"]}) == 4
        assert row["license"] == "mit"
    asked = lake.read("annotations", where={"kind": "video"}).to_pylist()
    assert {one["recording"] for one in asked} == {row["recording_id"] for row in rows.values()}
    assert {one["author"] for one in asked} == {"play", "pixels"}
    again = import_data(small, request)
    assert (again["iteration"], again["trajectories"], again.get("recordings", 0)) == (None, 0, 0)
    assert lake.count("recordings") == 2
