"""What trainings read of questions about recordings: the frames of the clip, with their times in it."""

from pathlib import Path
from typing import Any

import pytest

from learning.data.sample import TrainSample, read_samples
from schemas.context import ContextRule
from storage.catalog import ask
from storage.lake import Lake
from tasks.train.supervised import video_part, write_mixture

FRAMES = [letter * 64 for letter in "abcd"]


@pytest.fixture
def recorded(lake: Lake, row: Any) -> Lake:
    """Recordings of a success, a failure and a suspicious trajectory, and one without a trajectory."""
    for name, route in (("good", "sft"), ("bad", "ct"), ("odd", "quarantine"), ("alone", None)):
        if route:
            lake.append("trajectories", [row("trajectories", trajectory_id=name, task_id=f"task/{name}")])
            lake.append("verdicts", [row("verdicts", trajectory_id=name, route=route)])
        recording = "alone" if name == "alone" else f"of {name}"
        more = {"recording_id": recording, "trajectory_id": name, "frames": FRAMES, "times": [0.0, 4.0, 10.0, 15.0]}
        lake.append("recordings", [row("recordings", **more)])
        asked = [("whole", 0.0, 20.0), ("part", 5.5, 12.0)]
        lake.append("annotations", [
            row(
                "annotations", annotation_id=f"{name} {which}", trajectory_id=name, kind="video", action=None,
                question=f"{which}?", thought=f"{name}.", recording=recording, begin_s=begin, end_s=end,
            )
            for which, begin, end in asked
        ])  # fmt: skip
    return lake


def read(lake: Lake, folder: Path) -> dict[tuple[str, str], TrainSample]:
    part = video_part(lake, lake.versions(), 1.0)
    shown = write_mixture(folder / "samples", [part], 30, 0, lake, lake.versions(), ContextRule(1))
    assert shown == set(FRAMES)
    return {(one.thought, one.instruction): one for one in read_samples(folder / "samples")}


def test_questions_of_used_trajectories_and_of_recordings_alone_are_read(recorded: Lake) -> None:
    weighed = ask(recorded, "video_weights").to_pylist()
    assert {row["source"].partition(" ")[0] for row in weighed} == {"good", "bad", "alone"}
    assert {row["task_id"] for row in weighed} == {"task/good", "task/bad", "imported/recordings"}
    assert sum(row["weight"] for row in weighed) == pytest.approx(1.0)


def test_a_sample_has_the_frames_that_its_clip_shows_with_times_from_its_beginning(
    recorded: Lake, tmp_path: Path
) -> None:
    found = read(recorded, tmp_path)
    whole, part = found["good.", "whole?"], found["good.", "part?"]
    assert (whole.kind, whole.screenshots, whole.times) == ("video", tuple(FRAMES), (0.0, 4.0, 10.0, 15.0))
    assert (whole.seconds, whole.rate, whole.actions, whole.history) == (20.0, 10.0, (), ())
    assert part.screenshots == tuple(FRAMES[1:3])
    assert part.times == pytest.approx((0.0, 4.5)) and part.seconds == pytest.approx(6.5)


def test_without_a_share_nothing_is_read(recorded: Lake) -> None:
    assert video_part(recorded, recorded.versions(), 0.0).usable == 0
