"""Computes how a checkpoint's processor samples and resizes a video, and how the prompt shows it.

The families are those of Qwen2.5-VL, Qwen3-VL and Qwen3.5. Their vision towers take two frames as one, so a video of n
frames has n / 2 grids of patches, and each attends only to itself. Qwen2.5-VL limits the area of a frame, and its
positions count time. The others limit the area of all frames together, and their prompts write the time of each grid as
a text. The settings are read from the checkpoint's files. transformers' own processors need torchvision, and this
module does not.

Source: transformers 5.24.0, `models/qwen2_vl/video_processing_qwen2_vl.py`,
`models/qwen3_vl/{video_processing_qwen3_vl,processing_qwen3_vl}.py`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.families.screen import Size, smart_resize
from schemas.failure import FlywheelError

BY_MODEL_TYPE = {
    "qwen2_5_vl": "frames",
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), "stamped"),
}
"""Form of a video in the prompt, by `model_type` of a checkpoint's `config.json`."""
FPS = 2.0
"""SampledClip frames per second, if the files state none: the value of qwen-vl-utils and of Qwen3-VL's processor."""
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5, 0.5, 0.5)
_USUAL: dict[str, dict[str, Any]] = {
    "frames": {
        "size": {"shortest_edge": 128 * 28**2, "longest_edge": 768 * 28**2}, "patch_size": 14,
        "image_mean": _CLIP_MEAN, "image_std": _CLIP_STD, "max_video_tokens": 128_000,
    },
    "stamped": {
        "size": {"shortest_edge": 128 * 32**2, "longest_edge": 768 * 32**2}, "patch_size": 16,
        "image_mean": _HALF, "image_std": _HALF, "max_video_tokens": 768,
    },
}  # fmt: skip
"""Settings of the processors' classes, for what the files do not state."""
_SHARED = {"merge_size": 2, "temporal_patch_size": 2, "fps": FPS, "min_frames": 4, "max_frames": 768}


@dataclass(frozen=True, slots=True)
class Clip:
    """A video in a prompt: its shape, without its pixels."""

    width: int
    """Width of every frame in pixels."""
    height: int
    total: int
    """Number of frames before sampling."""
    rate: float
    """Frames per second before sampling."""


@dataclass(frozen=True, slots=True)
class SampledClip:
    """The frames of a clip that a checkpoint sees."""

    frames: tuple[int, ...]
    """Numbers of the frames, ascending; as many as fill whole grids, so the last one may repeat."""
    grid: tuple[int, int, int]
    """Grids in time, and rows and columns of patches of each."""
    size: Size
    """Width and height in pixels to which each frame is resized."""
    times: tuple[float, ...]
    """Second of each grid: the mean of its frames'."""
    grid_seconds: float
    """Seconds between grids."""

    @property
    def pairs(self) -> list[tuple[int, ...]]:
        """Lists the frames of each grid."""
        each = len(self.frames) // self.grid[0]
        return [self.frames[at : at + each] for at in range(0, len(self.frames), each)]


@dataclass(frozen=True, slots=True)
class VideoRule:
    """Settings of a checkpoint's video processor."""

    stamped: bool
    """Whether the prompt writes the time of each grid as a text, and the limits are of all frames together."""
    patch: int
    """Side of a patch in pixels."""
    merge: int
    """Patches along a side that become one token."""
    temporal: int
    """Frames of a grid."""
    least: int
    """Minimum area in pixels, of a frame, or of all frames if `stamped`."""
    most: int
    fps: float
    """SampledClip frames per second."""
    min_frames: int
    max_frames: int
    capped: bool
    """Whether a frame's share of the area is limited, too (`cap_pixels_per_frame`)."""
    max_tokens: int
    """Tokens of a frame (`stamped`) or of all frames, of which this limit is made."""
    mean: tuple[float, ...]
    """Mean of each colour that is subtracted, in [0, 1]."""
    std: tuple[float, ...]

    def sampled(self, clip: Clip) -> SampledClip:
        """Samples the frames of a clip, and computes their size, as the processor does.

        Raises:
            FlywheelError: the clip has fewer frames than a grid.
        """
        numbers = self._numbers(clip)
        if len(numbers) < self.temporal:
            raise FlywheelError(
                f"A video of {clip.total} frames at {clip.rate:g} a second has less than {self.temporal} frames to "
                "sample.",
                "Show a longer part of the recording (`video.clip_s`).",
            )
        wide, high = self._resized(len(numbers), (clip.width, clip.height))
        between = len(numbers) / clip.total * clip.rate
        whole = [*numbers, *[numbers[-1]] * (-len(numbers) % self.temporal)]
        grids = [whole[at : at + self.temporal] for at in range(0, len(whole), self.temporal)]
        times = tuple((grid[0] / clip.rate + grid[-1] / clip.rate) / 2 for grid in grids)
        grid = len(grids), high // self.patch, wide // self.patch
        return SampledClip(tuple(whole), grid, (wide, high), times, self.temporal / between)

    def tokens_of(self, sampled: SampledClip) -> int:
        """Counts the tokens of one grid."""
        return sampled.grid[1] * sampled.grid[2] // self.merge**2

    def text(self, sampled: SampledClip, video: str, begin: str, end: str) -> str:
        """Writes what replaces the placeholder of a video in a chat.

        Args:
            sampled: the sampled clip.
            video: the placeholder's token. begin, end: the tokens around the tokens of a picture.
        """
        each = video * self.tokens_of(sampled)
        if not self.stamped:
            return each * sampled.grid[0]
        return "".join(f"<{time:.1f} seconds>{begin}{each}{end}" for time in sampled.times)

    def _numbers(self, clip: Clip) -> list[int]:
        if self.stamped:
            count = int(clip.total / clip.rate * self.fps)
            count = min(max(count, self.min_frames), self.max_frames, clip.total)
            return np.linspace(0, clip.total - 1, count).round().astype(int).tolist()
        most = min(self.max_frames, clip.total) // self.temporal * self.temporal
        wanted = min(max(clip.total / clip.rate * self.fps, self.min_frames), most, clip.total)
        count = math.floor(wanted / self.temporal) * self.temporal
        if not count:
            return []
        step = clip.total / count
        places = np.arange(math.ceil(clip.total / step)) * step
        return places.astype(np.float32).astype(int).tolist()  # rounds as the processor's `torch.arange` does

    def _resized(self, frames: int, size: Size) -> Size:
        factor, most = self.patch * self.merge, self.most
        width, height = size
        floor = int(self.least * 1.05)
        if not self.stamped:
            if self.capped:
                whole = int(self.max_tokens * factor**2 * 0.9)
                most = max(min(most, whole * self.temporal // frames), floor)
            rows, columns = smart_resize(height, width, factor, self.least, most)
            return columns, rows
        if self.capped:
            most = max(min(self.max_tokens * factor**2, most // frames), floor) * frames
        rows, columns = _fitted(frames, height, width, self.temporal, factor, self.least, most)
        return columns, rows


def _fitted(frames: int, height: int, width: int, temporal: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """Computes the height and width of frames whose areas together are within limits (`smart_resize` of Qwen3-VL)."""
    if min(height, width) < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    rows, columns = (round(side / factor) * factor for side in (height, width))
    whole = round(frames / temporal) * temporal * rows * columns
    if whole > most:
        beta = math.sqrt(frames * height * width / most)
        rows, columns = (max(factor, math.floor(side / beta / factor) * factor) for side in (height, width))
    elif whole < least:
        beta = math.sqrt(least / (frames * height * width))
        rows, columns = (math.ceil(side * beta / factor) * factor for side in (height, width))
    return rows, columns


def video_rule_of(model_type: str, directory: Path) -> VideoRule | None:
    """Reads the settings of a directory's video processor; None for a type of model that takes no video."""
    form = BY_MODEL_TYPE.get(model_type)
    if form is None:
        return None
    given = {**_SHARED, **_USUAL[form], **{name: one for name, one in _files(directory).items() if one is not None}}
    size = given["size"]
    area = {"shortest_edge": given.get("min_pixels"), "longest_edge": given.get("max_pixels")}
    least, most = (area[name] or size.get(name) or _USUAL[form]["size"][name] for name in area)
    return VideoRule(
        stamped=form == "stamped",
        patch=int(given["patch_size"]),
        merge=int(given["merge_size"]),
        temporal=int(given["temporal_patch_size"]),
        least=int(least),
        most=int(most),
        fps=float(given["fps"]),
        min_frames=int(given["min_frames"]),
        max_frames=int(given["max_frames"]),
        capped=bool(given.get("cap_pixels_per_frame")),
        max_tokens=int(given["max_video_tokens"]),
        mean=tuple(given["image_mean"]),
        std=tuple(given["image_std"]),
    )


def _files(directory: Path) -> dict[str, Any]:
    """Reads the video processor's own settings, from the first file that has them, as transformers does."""
    path = directory / "processor_config.json"
    joint = json.loads(path.read_text()).get("video_processor") if path.is_file() else None
    if joint:
        return joint
    for name in ("video_preprocessor_config.json", "preprocessor_config.json"):
        if (directory / name).is_file():
            return json.loads((directory / name).read_text())
    return {}


def clip_of(size: Size, seconds: float, rate: float) -> Clip:
    """Makes the clip of a recording that is shown for some seconds; `rate` is its frames per second."""
    return Clip(*size, max(1, round(seconds * rate)), rate)


def frame_at(times: Sequence[float], second: float) -> int:
    """Returns the place of the frame that is shown at a time, by the times at which frames appear, ascending."""
    return max(0, int(np.searchsorted(np.asarray(times, np.float64), second + 1e-6, side="right")) - 1)
