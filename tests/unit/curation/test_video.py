"""Video files are read frame by frame, and frames with times are written as such files."""

import sys
import wave
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from curation.video import VideoRefused, changed_box, facts_of, frames_of, kept, last_before, write_video
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.curation.films import HIGH, MINUTE, WIDE, film, screen

pytest.importorskip("av", reason="the extra video: pip install 'flywheel[video]'")
both = pytest.mark.parametrize("suffix", [".mp4", ".webm"])


@both
def test_written_frames_come_back_at_their_times_and_the_file_has_its_duration(suffix: str, tmp_path: Path) -> None:
    file = film(tmp_path / f"a{suffix}")
    facts = facts_of(file)
    assert (facts.width, facts.height) == (WIDE, HIGH)
    assert facts.seconds == pytest.approx(60.0, abs=0.01)
    shots = [(round(shot.second, 2), shot.image) for shot in frames_of(file)]
    assert [second for second, _ in shots] == [0.0, 5.2, 20.0, 45.0, 60.0]
    for (_, image), (_, drawn) in zip(shots, MINUTE, strict=False):
        assert changed_box(image, drawn) is None


@both
def test_frames_are_kept_where_the_screen_changes(suffix: str, tmp_path: Path) -> None:
    file = film(tmp_path / f"a{suffix}")
    assert [round(second, 1) for second, _ in kept(frames_of(file), 2.0)] == [0.0, 5.2, 20.0, 45.0]


def test_frames_are_compared_at_a_rate(tmp_path: Path) -> None:
    flicker = [(at / 10, screen("blue") if at % 2 else screen()) for at in range(40)]
    file = film(tmp_path / "a.mp4", 4.0, flicker)
    assert len(list(kept(frames_of(file), 10.0))) == 40
    assert len(list(kept(frames_of(file), 1.0))) < 6


def test_the_screen_before_a_time_is_the_last_frame_that_began_before_it(tmp_path: Path) -> None:
    file = film(tmp_path / "a.mp4")
    found = last_before(frames_of(file), [0.0, 5.2, 5.3, 5.4, 99.0])
    assert [round(shot.second, 1) for shot in found] == [0.0, 0.0, 5.2, 5.2, 60.0]


def test_the_box_of_a_change_holds_it_in_whole_blocks() -> None:
    assert changed_box(screen(), screen()) is None
    left, top, right, bottom = changed_box(screen(), screen("green")) or (0, 0, 0, 0)
    assert left * WIDE <= 200 and top * HIGH <= 150 and right * WIDE >= 300 and bottom * HIGH >= 200
    assert right * WIDE - left * WIDE < 100 + 2 * 16 + 1


@pytest.mark.parametrize("content", [b"no video at all\n" * 99, b"", b"\x00\x00\x00\x20ftypisom"])
def test_a_file_that_is_no_video_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(VideoRefused, match="name an MP4, WebM, MKV or MOV file"):
        facts_of(tmp_path / "a.mp4")


def test_a_video_without_frames_is_refused(tmp_path: Path) -> None:
    import av

    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDE, HIGH, "yuv420p"
        container.start_encoding()
    for read in (facts_of, lambda file: list(frames_of(file))):
        with pytest.raises(VideoRefused, match="a video without frames: record it again"):
            read(tmp_path / "a.mkv")


@pytest.mark.parametrize("suffix", [".mp4", ".webm", ".mkv"])
def test_half_a_file_is_refused_with_its_durations(suffix: str, tmp_path: Path) -> None:
    import av

    whole, half = tmp_path / f"whole{suffix}", tmp_path / f"half{suffix}"
    fast = {"movflags": "faststart"} if suffix == ".mp4" else {}  # headers first, so that half a file has them
    noise = np.random.default_rng(0)
    with av.open(str(whole), "w", options=fast) as container:
        stream = container.add_stream("libvpx" if suffix == ".webm" else "libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(40):
            frame = av.VideoFrame.from_ndarray(noise.integers(0, 255, (48, 64, 3), np.uint8), "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert facts_of(whole).seconds == pytest.approx(4.0, abs=0.11)
    content = whole.read_bytes()
    half.write_bytes(content[: len(content) // 2])
    with pytest.raises(VideoRefused, match=r"state (4\.0|3\.9) s, and its \d+ frames end at [12]\.\d s"):
        facts_of(half)


def test_a_file_with_sound_alone_is_refused(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    with pytest.raises(VideoRefused, match="without a video stream"):
        facts_of(tmp_path / "a.wav")


def test_only_mp4_and_webm_are_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.avi is neither \.mp4 nor \.webm"):
        write_video(tmp_path / "a.avi", MINUTE, 60.0)
    with pytest.raises(UsageError, match="there are no frames"):
        write_video(tmp_path / "a.mp4", [], 60.0)


def test_without_pyav_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, sentence: Sentences) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with sentence.raises(FlywheelError, "flywheel[video]"):
        facts_of(Path("a.mp4"))
