"""Screen recordings with event logs become trajectories, and exported trajectories become such recordings."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from common.picture import png_of, rgb_of
from curation.converters.exchanged import Exchanged, ExchangedStep, Picture, RecordRefused
from curation.converters.files import ImportSource, RecordedAs, Target
from curation.converters.recording import RecordingFormat
from curation.video import changed_box, frames_of
from schemas.action import Click, Finished, Scroll, Type
from schemas.config.curating import VideoConfig
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.curation.films import EVENTS, HIGH, WIDE, film, log, screen

pytest.importorskip("av", reason="the extra video: pip install 'flywheel[video]'")
GIVEN = RecordedAs("Say hi.", "cc-by-4.0")


def read(path: Path, given: RecordedAs = GIVEN) -> list[Exchanged | RecordRefused]:
    return [found for _, found in RecordingFormat().read(ImportSource(path, recorded=given))]


def one(path: Path, given: RecordedAs = GIVEN) -> Exchanged:
    (found,) = read(path, given)
    assert isinstance(found, Exchanged), found
    return found


def refusal(path: Path, given: RecordedAs = GIVEN) -> RecordRefused:
    found = next(iter(read(path, given)))
    assert isinstance(found, RecordRefused)
    return found


def test_a_minute_with_an_event_log_becomes_steps_whose_screens_are_before_the_actions(tmp_path: Path) -> None:
    file = film(tmp_path / "talk.mp4")
    log(tmp_path / "talk.jsonl")
    found = one(file)
    assert [step.actions for step in found.steps] == [
        (Click(x=50 / WIDE, y=36 / HIGH),),
        (Click(x=0.5, y=0.5),),
        (Type(content="hi\n"),),
        (Scroll(x=0.1, y=0.9, direction="down"),),
    ]
    before = [screen("red"), screen("red", "blue"), *[screen("red", "blue", "green")] * 2]
    for step, drawn in zip(found.steps, before, strict=True):
        assert changed_box(rgb_of(step.screen.png), drawn) is None
    assert found.after and changed_box(rgb_of(found.after.png), screen("blue", "green")) is None
    assert found.steps[3].extra == {"recording": {"second": 44.0, "scrolled": [0.0, -3.0]}}
    assert (found.instruction, found.success) == ("Say hi.", None)
    kept = found.recording
    assert kept and (kept.source, kept.license, round(kept.seconds)) == ("talk.mp4", "cc-by-4.0", 60)
    assert [round(second, 1) for second, _ in kept.frames()] == [0.0, 5.2, 20.0, 45.0]


def test_a_video_without_an_event_log_has_frames_and_no_steps(tmp_path: Path) -> None:
    found = one(film(tmp_path / "talk.webm"), RecordedAs())
    assert found.steps == () and found.recording is not None
    assert len(list(found.recording.frames())) == 4


def test_records_name_the_files_the_task_the_outcome_and_the_clock(tmp_path: Path) -> None:
    film(tmp_path / "day" / "talk.mp4")
    log(tmp_path / "day" / "log.txt", [{**event, "time": event["time"] + 1000} for event in EVENTS])
    line = {"video": "day/talk.mp4", "events": "day/log.txt", "instruction": "Greet.", "success": True, "start": 1000}
    (tmp_path / "recordings.jsonl").write_text(json.dumps({**line, "license": "mit", "by": "ada"}) + "\n")
    found = one(tmp_path)
    assert (found.instruction, found.success, len(found.steps)) == ("Greet.", True, 4)
    assert found.extra == {"recording": {"license": "mit", "by": "ada"}}
    assert [step.began_s for step in found.steps] == [5.0, 19.5, 30.0, 44.0]


def test_a_folder_of_agentnets_recorder_is_read_with_its_clock_and_its_screen(tmp_path: Path) -> None:
    film(tmp_path / "talk.mp4")
    at = {"x": 320, "y": 240, "button": "left", "action": "click"}
    log(tmp_path / "events.jsonl", [
        {"time_stamp": 500.5, "action": "pause"},
        {"time_stamp": 505.5, "pressed": True, **at}, {"time_stamp": 505.6, "pressed": False, **at},
        {"time_stamp": 506.0, "action": "press", "name": "shift_l", "pynput_key": "Key.shift"},
    ])  # fmt: skip
    about = {"video_start_timestamp": 500.0, "screen_width": 2 * WIDE, "screen_height": 2 * HIGH}
    (tmp_path / "metadata.json").write_text(json.dumps(about))
    found = one(tmp_path)
    assert [(step.began_s, step.actions) for step in found.steps] == [(5.5, (Click(x=0.5, y=0.5),))]


def test_the_same_file_sampled_in_another_way_is_another_record(tmp_path: Path) -> None:
    file = film(tmp_path / "talk.mp4")
    finer = RecordedAs("Say hi.", "cc-by-4.0", VideoConfig(fps=5.0))
    assert one(file).digest == one(file).digest != one(file, finer).digest


@pytest.mark.parametrize(
    ("event", "field", "fix"),
    [
        ({"time": 75.2, "kind": "text", "text": "a"}, "time", "`start`"),
        ({"time": -3.0, "kind": "text", "text": "a"}, "time", "`start`"),
        ({"time": 5.0, "kind": "click", "x": 999, "y": 5}, "x", "`screen`"),
        ({"time": 5.0, "kind": "tap", "x": 1, "y": 5}, "kind", "click"),
        ({"time": 5.0, "kind": "key", "key": "ctrl alt shift a"}, "key", "at most 3"),
    ],
    ids=["late", "early", "outside", "unknown", "four-keys"],
)
def test_an_invalid_event_is_refused_with_its_line_and_field(
    event: dict[str, Any], field: str, fix: str, tmp_path: Path, sentence: Sentences
) -> None:
    file = film(tmp_path / "talk.mp4")
    log(tmp_path / "talk.jsonl", [EVENTS[0], event])
    refused = refusal(file)
    assert (refused.field, refused.place.file) == (field, "talk.jsonl") and fix in refused.problem
    assert refused.place.line == (None if field == "key" else 2)
    sentence(refused)


def test_a_file_that_is_no_video_and_a_recording_that_is_too_long_are_refused(
    tmp_path: Path, sentence: Sentences
) -> None:
    (tmp_path / "a.mp4").write_text("no video")
    refused = refusal(tmp_path / "a.mp4")
    assert refused.field == "video"
    sentence(refused)
    long = refusal(film(tmp_path / "b.mp4"), RecordedAs(video=VideoConfig(max_seconds=30.0)))
    assert long.field == "video" and "`video.max_seconds`" in long.problem
    sentence(long)


def test_a_recording_of_actions_needs_an_instruction(tmp_path: Path, sentence: Sentences) -> None:
    log(tmp_path / "talk.jsonl")
    refused = refusal(film(tmp_path / "talk.mp4"), RecordedAs())
    assert refused.field == "instruction" and "--instruction" in refused.problem
    sentence(refused)


@pytest.mark.parametrize("name", ["../talk.mp4", "/etc/hosts", "no.mp4", "a\0b"])
def test_a_video_is_named_below_the_folder_of_the_records(name: str, tmp_path: Path) -> None:
    film(tmp_path / "talk.mp4")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "recordings.jsonl").write_text(json.dumps({"video": name}) + "\n")
    assert refusal(tmp_path / "in").field == "video"


def test_a_folder_without_a_video_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file of the form"):
        read(tmp_path)
    log(tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="nor a video file"):
        read(tmp_path)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(UsageError, match="is no video"):
        read(tmp_path / "a.txt")


def test_an_exported_trajectory_is_a_recording_with_its_times_and_comes_back(tmp_path: Path) -> None:
    def picture(*colours: str) -> Picture:
        return Picture(png_of(screen(*colours)), WIDE, HIGH)

    steps = (
        ExchangedStep(picture(), "The box.", (Click(x=0.5, y=0.5),), shown_s=0.0, began_s=1.5),
        ExchangedStep(picture("blue"), "", (Type(content="a"), Click(x=0.1, y=0.1)), shown_s=2.0, began_s=4.0),
        ExchangedStep(picture("green"), "", (Finished(),), shown_s=4.5, began_s=6.0),
    )
    RecordingFormat().export([Exchanged("a", "Do it.", steps, True)], Target(tmp_path))
    seconds = [round(shot.second, 2) for shot in frames_of(tmp_path / "00000.mp4")]
    assert seconds[:3] == [0.0, 2.0, 4.5] and seconds[-1] == pytest.approx(7.0, abs=0.01)
    found = one(tmp_path, RecordedAs())
    assert [(step.thought, step.actions, step.began_s) for step in found.steps] == [
        (step.thought, step.actions, step.began_s) for step in steps
    ]
    assert (found.instruction, found.success) == ("Do it.", True)
    for step, given in zip(found.steps, steps, strict=True):
        assert changed_box(rgb_of(step.screen.png), rgb_of(io.BytesIO(given.screen.png).getvalue())) is None
