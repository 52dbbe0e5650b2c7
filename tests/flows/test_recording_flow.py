"""Screen recordings become an iteration of their own: frames with times, and steps where there is an event log."""

from pathlib import Path
from typing import Any

import pytest

import flywheel
from apps.commands.forgetting import forget_trajectories
from curation.video import facts_of
from flows.data import import_data
from learning.data.sample import Screenshots, read_samples
from learning.engines.fsdp.chats import Chats
from models.random_vlm import build_random
from schemas.config import Config
from schemas.context import ContextRule
from schemas.tables.stage import HEADLINE
from storage.lake import Lake
from tasks.exchange.importing import Request
from tasks.shared.material import write_pictures
from tasks.train.supervised import video_part, write_mixture
from tests.unit.curation.films import film, log
from tests.unit.learning.chats import policy_of

pytest.importorskip("av", reason="the extra video: pip install 'flywheel[video]'")


def tokens_of(lake: Lake, folder: Path, kind: Any, count: int) -> list[int]:
    """Numbers of video tokens of a lake's questions about recordings, as a training of a model encodes them."""
    folder.mkdir()
    build_random(kind, ["What changed? Nothing."] * 8, 0, folder / "model")
    pins = lake.versions()
    names = write_mixture(folder / "samples", [video_part(lake, pins, 1.0)], 4 * count, 0, lake, pins, ContextRule(1))
    write_pictures(folder / "screenshots", lake, names, None)
    chats = Chats(folder / "model", policy_of(kind), Screenshots(folder / "screenshots"), 0)
    found = [chats.measure(sample) for sample in read_samples(folder / "samples")]
    assert len(found) == count
    return [sum(piece.tokens for piece in one.item.screens) for one in found]


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
    shown = flywheel.open(small.lake.uri).trajectory(trajectory["trajectory_id"])
    assert [round(second, 1) for second, _ in shown.recording()] == [0.0, 5.2, 20.0, 45.0]
    shown.save_video(tmp_path / "out.webm")
    assert round(facts_of(tmp_path / "out.webm").seconds) == 60
    count = len(asked)
    for kind in ("qwen2_5_vl", "qwen3_vl", "qwen3_5"):
        assert all(tokens_of(lake, tmp_path / kind, kind, count))
    again = import_data(small, request)
    assert (again["iteration"], again["trajectories"], again.get("recordings", 0)) == (None, 0, 0)
    assert lake.count("recordings") == 2


@pytest.mark.slow
def test_a_forgotten_recording_is_not_imported_again(small: Config, tmp_path: Path) -> None:
    film(tmp_path / "in" / "alone.webm", 50.0)
    request = Request(format="recording", path=tmp_path / "in", instruction="Say hi.")
    import_data(small, request)
    lake = Lake.open(small.lake)
    (row,) = lake.read("recordings").to_pylist()
    frames = {"sha256": row["frames"]}
    assert forget_trajectories(lake, [row["recording_id"]], "").recordings == [row["recording_id"]]
    assert not lake.count("recordings") + lake.count("annotations") + lake.count("screenshots", frames)
    again = import_data(small, request)
    assert (again["iteration"], lake.count("screenshots", frames)) == (None, 0)
    film(tmp_path / "in" / "logged.mp4")
    log(tmp_path / "in" / "logged.jsonl")
    more = import_data(small, request)
    assert [more[name] for name in ("trajectories", "recordings", "forgotten", "repeated")] == [1, 1, 1, 0]
    assert "1 record forgotten earlier, left out" in more[HEADLINE]
    assert [one["source"] for one in lake.read("recordings").to_pylist()] == ["logged.mp4"]
