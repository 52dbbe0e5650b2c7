"""In what size a checkpoint is shown a screen, and what the numbers that it writes count there.

An image processor of the Qwen kind resizes a screen to whole patches within its own limits of area, and models that
write pixels write those of the resized picture. So the limits are read from the checkpoint's processor, never assumed;
the screen is resized by them once, here, and that picture goes to the network, the server and the trainer alike. The
rule gives its own results back (`smart_resize` is idempotent), so nobody resizes it a second time.
"""

import io
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from PIL import Image

Size = tuple[int, int]
"""Width and height, in pixels."""
MOST_OBLONG = 200
"""Ratio of the sides above which no processor takes a picture."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What an image processor makes of a screen: sides in whole factors, an area within bounds.

    Args:
        factor: pixels; both sides become a multiple (a patch times what is merged into a token).
        least, most: pixels of area (`size.shortest_edge` and `size.longest_edge`, which are no edges).
        frames: how often the area counts: GLM's processor counts a picture as two frames.
    """

    factor: int
    least: int
    most: int
    frames: int = 1

    def resized(self, screen: Size) -> Size:
        """Width and height in which a screen of this size is shown.

        Raises:
            ValueError: one side is over 200 times the other, which no processor takes.
        """
        width, height = screen
        if (ratio := max(screen) / min(screen)) > MOST_OBLONG:
            raise ValueError(f"a screen of {width}x{height} has sides of ratio {ratio:g}, over {MOST_OBLONG}")
        if self.frames > 1 and min(screen) < self.factor:  # GLM's, which does not resize from nothing
            scale = self.factor / min(screen)
            width, height = int(width * scale), int(height * scale)
        rows, columns = smart_resize(height, width, self.factor, self.least / self.frames, self.most / self.frames)
        return columns, rows


def smart_resize(height: int, width: int, factor: int, least: float, most: float) -> tuple[int, int]:
    """The (height, width) in pixels that Qwen's image processors choose: multiples of `factor`, the area within
    [`least`, `most`], the aspect kept as far as that allows.

    Halves are rounded to the even one, as in Python and unlike in the desktop client's TypeScript; a side below half a
    factor becomes 0 and is then scaled up (`transformers.models.qwen2_vl`).
    """
    rows, columns = (round(side / factor) * factor for side in (height, width))
    if rows * columns > most:
        beta = math.sqrt(height * width / most)
        rows, columns = (max(factor, math.floor(side / beta / factor) * factor) for side in (height, width))
    elif rows * columns < least:
        beta = math.sqrt(least / (height * width))
        rows, columns = (math.ceil(side * beta / factor) * factor for side in (height, width))
    return rows, columns


def limits_of(image_processor: Any) -> ImageLimits | None:
    """The limits of a loaded image processor; None of one that does not resize to whole patches by area."""
    size = getattr(image_processor, "size", None) or {}
    least, most = (_entry(size, name) for name in ("shortest_edge", "longest_edge"))
    patch, merged = (int(getattr(image_processor, name, 0) or 0) for name in ("patch_size", "merge_size"))
    if not (getattr(image_processor, "do_resize", False) and patch and merged and least and most):
        return None
    frames = int(image_processor.temporal_patch_size) if type(image_processor).__name__.startswith("Glm") else 1
    return ImageLimits(patch * merged, least, most, frames)


def _entry(size: Any, name: str) -> int:
    found = size.get(name) if isinstance(size, dict) else getattr(size, name, None)
    return int(found or 0)


Unit = Literal["thousandths", "fraction", "pixels"]


@dataclass(frozen=True, slots=True)
class CoordinateSpace:
    """What a family's numbers count.

    Args:
        unit: thousandths or fractions of the screen, or pixels of the picture that the checkpoint's processor makes.
        limits: the processor's; pixels need them.
    """

    unit: Unit
    limits: ImageLimits | None = None

    def sides(self, screen: Size) -> tuple[float, float]:
        """How many of the unit a screen of this size is wide and high.

        Raises:
            ValueError: a screen that is too oblong for the processor.
        """
        if self.unit != "pixels":
            return (1000.0, 1000.0) if self.unit == "thousandths" else (1.0, 1.0)
        assert self.limits is not None, "pixels of a picture of unknown size"
        columns, rows = self.limits.resized(screen)
        return float(columns), float(rows)


def picture(png: bytes, limits: ImageLimits | None) -> Image.Image:
    """A screen as a model is shown it, RGB: in the size that its processor would choose, where it has limits.

    Resampled as the processors do (bicubic), so that the pixels are theirs too.
    """
    image = Image.open(io.BytesIO(png)).convert("RGB")
    return image if limits is None else sized(image, limits)


def sized(image: Image.Image, limits: ImageLimits) -> Image.Image:
    """A picture in the size that a processor of these limits would choose."""
    size = limits.resized(image.size)
    return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)


@lru_cache(maxsize=32)
def picture_png(png: bytes, limits: ImageLimits | None) -> bytes:
    """The same for a server: as it is where its size is right, else as a new PNG. The last few are kept, since a screen
    is sent again with every step whose chat shows it."""
    if limits is None:
        return png
    image = Image.open(io.BytesIO(png))
    if limits.resized(image.size) == image.size:
        return png
    out = io.BytesIO()
    sized(image.convert("RGB"), limits).save(out, "png", compress_level=1)
    return out.getvalue()
