"""Draw a trajectory: its screens, each with a mark for the action and a caption, as a moving picture or a strip.

A video has the screens alone, each as long as it was shown.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from common.text import legible
from curation.timeline import timeline
from curation.video import write_video
from schemas.action import in_words
from schemas.failure import FlywheelError, UsageError
from schemas.tables.recording import Recording
from storage.lake import Lake

if TYPE_CHECKING:
    from flywheel.lake import StoredTrajectory

WIDE, SMALL = 480, 160
"""Width in pixels of a screen in a moving picture, and in a strip."""
STEP_MS, END_MS = 900, 2500
"""Milliseconds of a frame, and of the last one."""
COLOURS = 128
"""Colours of a GIF."""
PAPER, INK, GOOD, BAD, SOFT, MARK = "#fbfaf8", "#1f2328", "#1f7a4a", "#b3402e", "#6b7280", "#d9480f"
CAPTION, GAP = 22, 8
"""Height in pixels of a caption, and space between the screens of a strip."""


def frames_of(
    one: "StoredTrajectory", width: int = WIDE, captions: bool = True, most: int | None = None
) -> list[Image.Image]:
    """Draw one frame an action, and the last screen framed in the outcome's colour.

    Args:
        one: the trajectory.
        width: width of each frame in pixels.
        captions: write the step's number and action below the screen.
        most: maximum number of steps; the later ones are left out.

    Raises:
        UsageError: the trajectory has no steps.
        LakeError: the lake no longer has a screenshot.
    """
    if not one.steps:
        raise UsageError(f"Trajectory {one.row['trajectory_id']} has no steps, so there is no picture.")
    frames, steps = list[Image.Image](), one.steps[:most]
    for number, step in enumerate(steps, 1):
        actions = step.actions or [""]
        for place, (digest, action) in enumerate(zip((step.screenshot, *step.frames), actions, strict=False), 1):
            several = f" ({place} of {len(actions)})" if len(actions) > 1 else ""
            error = f": {legible(step.action_error)}" if step.action_error else ""
            caption = f"{number} of {len(one.steps)}{several}  {in_words(action)}{error}"
            frames.append(_drawn(one.screen(digest), action, width, caption if captions else ""))
    frames.append(_ended(one, steps[-1].pictures[-1], width, captions))
    height = max(frame.height for frame in frames)
    return [_padded(frame, (width, height)) for frame in frames]


def strip_of(one: "StoredTrajectory", width: int = SMALL) -> Image.Image:
    """Draw all frames next to each other. The arguments and errors are those of `frames_of`."""
    frames = frames_of(one, width, captions=False)
    made = Image.new("RGB", (GAP + len(frames) * (frames[0].width + GAP), frames[0].height + 2 * GAP), PAPER)
    for number, frame in enumerate(frames):
        made.paste(frame, (GAP + number * (frame.width + GAP), GAP))
    return made


def paired_frames(films: Sequence[Sequence[Image.Image]], names: Sequence[str]) -> list[Image.Image]:
    """Draw several films next to each other, each below its name. A film that is over shows its last frame.

    Args:
        films: frames of each film; the frames of a film have one size.
        names: name of each film.
    """
    count = max(map(len, films))
    return [
        _joint([_named(film[min(at, len(film) - 1)], name) for film, name in zip(films, names, strict=True)])
        for at in range(count)
    ]


def stacked_strips(strips: Sequence[Image.Image], names: Sequence[str]) -> Image.Image:
    """Draw several strips below each other, each below its name."""
    named = [_named(strip, name) for strip, name in zip(strips, names, strict=True)]
    made = Image.new("RGB", (max(one.width for one in named), sum(one.height for one in named)), PAPER)
    for number, one in enumerate(named):
        made.paste(one, (0, sum(above.height for above in named[:number])))
    return made


def save_moving(frames: Sequence[Image.Image], to: Path, largest: int | None = None, step_ms: int = STEP_MS) -> None:
    """Write frames as a GIF or WebP that repeats.

    Args:
        frames: frames of one size.
        to: the file, with the suffix `.gif` or `.webp`.
        largest: maximum size of the file in bytes; any size if None.
        step_ms: milliseconds of each frame but the last.

    Raises:
        UsageError: the file has another suffix.
        FlywheelError: the picture would be larger.
    """
    if (form := to.suffix.lower()) not in (".gif", ".webp"):
        raise UsageError(f"{to.name} is neither .gif nor .webp.", "Name the file, for example, trajectory.gif.")
    held = io.BytesIO()
    write_moving(frames, held, form[1:], step_ms)
    if largest is not None and held.tell() > largest:
        raise FlywheelError(f"The picture has {held.tell():,} bytes.", "Take a task of fewer or smaller screens.")
    to.write_bytes(held.getvalue())


def frame_times_of(one: "StoredTrajectory", lake: Lake) -> tuple[list[tuple[float, str]], float]:
    """Return the seconds at which each screen of a trajectory appeared with its sha256, and the duration.

    Raises:
        UsageError: the trajectory has no steps.
    """
    name = one.row["trajectory_id"]
    if not one.steps:
        raise UsageError(f"Trajectory {name} has no steps, so there is no picture.")
    if recorded := lake.rows(Recording, {"trajectory_id": name}):
        return list(zip(recorded[0].times, recorded[0].frames, strict=True)), recorded[0].seconds
    times = timeline(one.steps)
    return list(times.shown), times.seconds


def save_video(one: "StoredTrajectory", lake: Lake, to: Path) -> None:
    """Write the screens of a trajectory with their times as a video, in the size of the first screen.

    The arguments and errors are those of `frame_times_of` and `curation.video.write_video`.
    """
    shown, seconds = frame_times_of(one, lake)
    size = one.screen(shown[0][1]).size
    frames = ((second, one.screen(digest).convert("RGB")) for second, digest in shown)
    fitting = ((second, frame if frame.size == size else frame.resize(size)) for second, frame in frames)
    write_video(to, fitting, seconds)


def write_moving(frames: Sequence[Image.Image], to: io.BytesIO, form: str = "gif", step_ms: int = STEP_MS) -> None:
    """Write frames of one size as a moving picture of the form `gif` or `webp` that repeats."""
    times = [step_ms] * (len(frames) - 1) + [END_MS]
    if form == "webp":
        frames[0].save(to, "WEBP", save_all=True, append_images=list(frames[1:]), duration=times, loop=0, quality=80)
        return
    palette = _palette(frames)
    coded = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames]
    coded[0].save(to, "GIF", save_all=True, append_images=coded[1:], duration=times, loop=0, optimize=True)


def fitted(screen: Image.Image, width: int) -> Image.Image:
    """Return a screen in RGB, scaled to a width in pixels."""
    size = width, max(1, round(screen.height * width / screen.width))
    return screen.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def draw_marks(screen: Image.Image, action: str) -> None:
    """Draw a ring at the place of an action, and a line to the end of a drag."""
    fields = json.loads(action) if action else {}
    pen, radius = ImageDraw.Draw(screen), max(4, round(max(screen.size) / 40))
    places = [
        (fields[x] * screen.width, fields[y] * screen.height) for x, y in (("x", "y"), ("to_x", "to_y")) if x in fields
    ]
    if len(places) > 1:
        pen.line(places, MARK, 3)
    for number, (x, y) in enumerate(places):
        box = (x - radius, y - radius, x + radius, y + radius)
        pen.ellipse(box, outline=MARK, width=3, fill=MARK if number else None)


def frame_outcome(screen: Image.Image, success: bool | None) -> None:
    """Draw a frame around a screen: green for a success, red for a failure, grey for neither."""
    colour = SOFT if success is None else GOOD if success else BAD
    ImageDraw.Draw(screen).rectangle((0, 0, screen.width - 1, screen.height - 1), outline=colour, width=5)


def _drawn(screen: Image.Image, action: str, width: int, caption: str) -> Image.Image:
    small = fitted(screen, width)
    draw_marks(small, action)
    return _captioned(small, caption) if caption else small


def _ended(one: "StoredTrajectory", digest: str, width: int, captions: bool) -> Image.Image:
    small = fitted(one.screen(digest), width)
    frame_outcome(small, one.row["success"])
    reward = one.row["reward"]
    word = {True: "success", False: "failure", None: "no outcome"}[one.row["success"]]
    text = word if reward is None else f"{word}, reward {reward:.2f}"
    return _captioned(small, text) if captions else small


def _joint(frames: Sequence[Image.Image]) -> Image.Image:
    """Draw frames next to each other."""
    width = sum(one.width for one in frames) + GAP * (len(frames) - 1)
    made, left = Image.new("RGB", (width, max(one.height for one in frames)), PAPER), 0
    for one in frames:
        made.paste(one, (left, 0))
        left += one.width + GAP
    return made


def _named(screen: Image.Image, name: str) -> Image.Image:
    return _captioned(screen, name, above=True)


def _captioned(screen: Image.Image, text: str, above: bool = False) -> Image.Image:
    font = ImageFont.load_default(13)
    made = Image.new("RGB", (screen.width, screen.height + CAPTION), PAPER)
    made.paste(screen, (0, CAPTION if above else 0))
    while len(text) > 1 and font.getlength(text) > screen.width - 8:
        text = f"{text[: min(len(text) - 2, int(len(text) * screen.width / font.getlength(text)))]}…"
    ImageDraw.Draw(made).text((4, 3 if above else screen.height + 3), text, INK, font)
    return made


def _padded(frame: Image.Image, size: tuple[int, int]) -> Image.Image:
    if frame.size == size:
        return frame
    made = Image.new("RGB", size, PAPER)
    made.paste(frame, (0, 0))
    return made


def _palette(frames: Sequence[Image.Image]) -> Image.Image:
    """Choose the colours from a few frames next to each other, so that no frame's colours are missing."""
    some = [frames[0], frames[len(frames) // 2], frames[-1]]
    joint = Image.new("RGB", (sum(one.width for one in some), some[0].height))
    for number, one in enumerate(some):
        joint.paste(one, (number * one.width, 0))
    return joint.quantize(COLOURS)
