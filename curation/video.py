# pyright: basic
# PyAV has no complete types of its own
"""Read video files frame by frame, and write frames with times as video files, with PyAV (the extra `video`).

A file is decoded from its beginning to its end, and only one frame is in memory at a time. Its frames have the times of
the file, counted from its first frame.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from schemas.failure import FlywheelError, UsageError

SUFFIXES = (".mp4", ".webm", ".mkv", ".mov")
"""Suffixes of the video files that are read."""
WRITTEN = {
    ".mp4": ("libx264", {"crf": "16", "preset": "veryfast", "bf": "0"}),
    ".webm": ("libvpx-vp9", {"crf": "20", "b": "0"}),
}
"""Codec and options of the video files that are written, by suffix."""
BLOCK = 16
"""Side in pixels of the blocks by which two frames are compared: a macroblock of the usual codecs."""
CHANGED = 4.0
"""Mean difference in grey levels (of 255) from which a block has changed. A blinking cursor of a page's size has 14."""
EMPTY = "a video without frames: record it again, or remove it"
USUAL_RATE = 25.0
"""Frames per second of a file that states no rate."""
LEAST_RATE = 10.0
"""Minimum of `VideoFacts.rate`: recorders that write a frame only where the screen changes have a low average."""
SHORT_S = 0.5
"""Seconds by which a file's frames may end before the duration in its headers."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom as fractions of the screen."""


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """Properties of a video file."""

    width: int
    height: int
    rate: float
    """Average frames per second, at least `LEAST_RATE`."""
    seconds: float
    """Duration from the beginning of the first frame to the end of the last one."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A decoded frame."""

    second: float
    """Time from the first frame."""
    _frame: Any

    @property
    def image(self) -> Image.Image:
        """Converts the frame to RGB."""
        return self._frame.to_image()

    @property
    def size(self) -> tuple[int, int]:
        """Returns width and height in pixels."""
        return self._frame.width, self._frame.height


class VideoRefused(ValueError):
    """Raised for a file that is no video, has no frames or breaks off; the message is the problem with its fix."""


def require_av() -> Any:
    """Imports PyAV.

    Raises:
        FlywheelError: the extra is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise FlywheelError(
            "Video files are read with PyAV, and the package `av` is not installed.",
            "Install it: pip install 'flywheel[video]'.",
        ) from error
    return av


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Opens a file, and yields its container and its video stream; raises VideoRefused as `frames_of` does."""
    av = require_av()
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise VideoRefused("a file without a video stream: record the screen, not only the sound")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            yield container, stream
    except av.error.EOFError as error:
        raise VideoRefused(EMPTY) from error
    except av.error.InvalidDataError as error:
        raise VideoRefused("no video that PyAV can read: name an MP4, WebM, MKV or MOV file") from error
    except av.error.FFmpegError as error:
        raise VideoRefused(f"the video breaks off ({error.strerror}): copy the file again") from error


def frames_of(path: Path) -> Iterator[Shot]:
    """Yield the frames of a file in order.

    Raises:
        VideoRefused: the file is no video, breaks off, has no frame, or has frames of several sizes.
        FlywheelError: the extra `video` is not installed.
    """
    with _opened(path) as (container, stream):
        rate, first, last, size = float(stream.average_rate or USUAL_RATE), None, 0.0, (0, 0)
        for number, frame in enumerate(container.decode(stream)):
            at = frame.time if frame.time is not None else number / rate
            if first is None:
                first, size = at, (frame.width, frame.height)
            last = max(last, at - first)
            if (frame.width, frame.height) != size:
                sizes = f"{size[0]} x {size[1]} and {frame.width} x {frame.height}"
                raise VideoRefused(f"frames of {sizes} pixels (at {last:.1f} s): record a screen of one size")
            yield Shot(last, frame)
        if first is None:
            raise VideoRefused(EMPTY)


def facts_of(path: Path) -> VideoFacts:
    """Return the properties of a file, from its headers and the times of its packets, without decoding it.

    Raises:
        VideoRefused: as `frames_of`, or the frames end before the duration in the headers, as in half a copy.
        FlywheelError: the extra `video` is not installed.
    """
    with _opened(path) as (container, stream):
        rate = float(stream.average_rate or stream.guessed_rate or USUAL_RATE)
        begins, count, end = None, 0, 0.0
        for packet in container.demux(stream):
            if packet.pts is None or packet.size == 0:
                continue
            at = float(packet.pts * packet.time_base)
            long = float((packet.duration or 0) * packet.time_base) or 1 / rate
            begins, end, count = at if begins is None else min(begins, at), max(end, at + long), count + 1
        if begins is None:
            raise VideoRefused(EMPTY)
        seconds, shown, stated = end - begins, stream.codec_context, _stated_s(container, stream)
        if stated > max(end, seconds) + SHORT_S:
            problem = (
                f"the video breaks off: its headers state {stated:.1f} s, and its {count} frames end at {end:.1f} s"
            )
            raise VideoRefused(f"{problem}: copy the file again, or rewrite it with `ffmpeg -i OLD -c copy NEW`")
        return VideoFacts(shown.width, shown.height, max(LEAST_RATE, count / seconds), seconds)


def _stated_s(container: Any, stream: Any) -> float:
    """Returns the duration of a video stream in its file's headers, in seconds; 0 if they state none.

    Sound may be longer than the screen's last frame, so the duration of a file with sound does not count.
    """
    if stream.duration is not None:
        return float(stream.duration * stream.time_base)
    if tag := re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.metadata.get("DURATION", "")):  # of WebM and MKV
        return 3600.0 * int(tag[1]) + 60.0 * int(tag[2]) + float(tag[3])
    return container.duration / 1e6 if container.duration and len(container.streams) == 1 else 0.0


def last_before(shots: Iterable[Shot], times: Sequence[float]) -> Iterator[Shot]:
    """Yield for each time the last frame that began before it, else the first frame.

    Args:
        shots: the frames of a file.
        times: seconds, in ascending order; each asks for one frame.
    """
    left, before = list(times), None
    for shot in shots:
        while left and before is not None and shot.second >= left[0]:
            left.pop(0)
            yield before
        if not left:
            return
        before = shot
    if before is not None:
        yield from [before] * len(left)


def sampled(shots: Iterable[Shot], fps: float) -> Iterator[Shot]:
    """Yield the frames that are shown at multiples of 1 / `fps` seconds, each frame once."""
    due, before = 0, None
    for shot in shots:
        if before is not None and shot.second > due / fps:
            yield before
            due = max(due + 1, int(np.ceil(shot.second * fps - 1e-9)))
        before = shot
    if before is not None:
        yield before


def changed_box(one: Image.Image, other: Image.Image) -> Box | None:
    """Return the smallest box that holds all changed blocks of two frames of one size; None if no block changed."""
    before, after = (np.asarray(image.convert("L"), np.int16) for image in (one, other))
    rows, columns = (-(-side // BLOCK) for side in before.shape)
    padded = np.zeros((rows * BLOCK, columns * BLOCK), np.float32)
    padded[: before.shape[0], : before.shape[1]] = np.abs(before - after)
    blocks = padded.reshape(rows, BLOCK, columns, BLOCK).mean((1, 3)) > CHANGED
    if not blocks.any():
        return None
    high, wide = before.shape
    down, across = np.flatnonzero(blocks.any(1)), np.flatnonzero(blocks.any(0))
    return (
        float(across[0] * BLOCK / wide),
        float(down[0] * BLOCK / high),
        min(1.0, float((across[-1] + 1) * BLOCK / wide)),
        min(1.0, float((down[-1] + 1) * BLOCK / high)),
    )


def kept(shots: Iterable[Shot], fps: float) -> Iterator[tuple[float, Image.Image]]:
    """Yield the sampled frames that differ from the frame kept before, with their times; the first has the time 0.

    Args:
        shots: the frames of a file.
        fps: frames per second that are compared.
    """
    before: Image.Image | None = None
    for shot in sampled(shots, fps):
        image = shot.image
        if before is None or changed_box(before, image) is not None:
            yield 0.0 if before is None else shot.second, image
            before = image


def write_video(to: Path, frames: Iterable[tuple[float, Image.Image]], seconds: float) -> None:
    """Write frames with times as an MP4 or WebM file, each shown until the next one.

    Args:
        to: the file, with the suffix `.mp4` or `.webm`.
        frames: seconds from the start, ascending, and a picture each; all pictures have one size.
        seconds: duration.

    Raises:
        UsageError: the file has another suffix, or there are no frames.
        FlywheelError: the extra `video` is not installed.
    """
    if to.suffix.lower() not in WRITTEN:
        raise UsageError(f"{to.name} is neither .mp4 nor .webm.", "Name the file, for example, trajectory.mp4.")
    av = require_av()
    codec, options = WRITTEN[to.suffix.lower()]
    base = Fraction(1, 1000)
    with av.open(str(to), "w") as container:
        stream = container.add_stream(codec, rate=1000, options=options)
        stream.codec_context.time_base = stream.time_base = base
        stream.pix_fmt = "yuv420p"
        last: Image.Image | None = None
        at = -1

        def put(second: float, image: Image.Image) -> None:
            nonlocal at
            at = max(at + 1, round(second * 1000))
            frame = av.VideoFrame.from_image(_even(image))
            frame.pts, frame.time_base = at, base
            for packet in stream.encode(frame):
                packet.duration = 1  # else a muxer takes the mean for the last one, which would lengthen the video
                container.mux(packet)

        for second, image in frames:
            if last is None:
                stream.width, stream.height = _even(image).size
            last = image
            put(second, image)
        if last is None:
            raise UsageError(f"{to.name}: there are no frames to write.", "Name a trajectory with steps.")
        if round(seconds * 1000) > at + 1:  # a last equal frame holds the picture until the end
            put(seconds - 0.001, last)
        for packet in stream.encode():
            packet.duration = 1
            container.mux(packet)


def _even(image: Image.Image) -> Image.Image:
    """Return a picture whose sides are even, as the codecs need; a missing row or column repeats the last one."""
    wide, high = (side + side % 2 for side in image.size)
    if (wide, high) == image.size:
        return image.convert("RGB")
    return Image.fromarray(
        np.pad(np.asarray(image.convert("RGB")), ((0, high - image.height), (0, wide - image.width), (0, 0)), "edge")
    )
