"""Sizes of screens as a checkpoint sees them, and the units of the coordinates that it writes there.

An image processor of the Qwen kind resizes a screen to whole patches within its own limits of area, and models that
write pixels write those of the resized picture. So the limits are read from the checkpoint's processor, never assumed;
the screen is resized by them once, here, and that picture goes to the network, the server and the trainer alike. The
rule gives its own results back (`smart_resize` is idempotent), so no processor resizes it a second time.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from PIL import Image

from common.picture import png_of, rgb_of, size_of, stored_plain

Size = tuple[int, int]
"""Width and height, in pixels."""
MOST_OBLONG = 200
"""Ratio of the sides above which no processor takes a picture."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of an image processor for screens: sides in whole factors, an area within bounds.

    Args:
        factor: pixels; both sides become a multiple (a patch times the patches merged into a token).
        least, most: pixels of area (`size.shortest_edge` and `size.longest_edge`, which are no edges).
        frames: how often the area counts: GLM's processor counts a picture as two frames.
        pads: whether the processor fills a screen up to whole factors, at its right and bottom, instead of stretching
            it (GLM-5's). A screen is then stretched here to the size that the processor would fill up, so that it has
            nothing to fill and a thousandth of its picture is one of the screen.
    """

    factor: int
    least: int
    most: int
    frames: int = 1
    pads: bool = False

    def resized(self, screen: Size) -> Size:
        """Computes width and height in which a screen of this size is shown.

        Raises:
            ValueError: one side is over 200 times the other, which no processor takes.
        """
        width, height = screen
        if (ratio := max(screen) / min(screen)) > MOST_OBLONG:
            raise ValueError(f"a screen of {width}x{height} has sides of ratio {ratio:g}, over {MOST_OBLONG}")
        if self.frames > 1 and min(screen) < self.factor:  # GLM's, which does not resize from nothing
            scale = self.factor / min(screen)
            width, height = int(width * scale), int(height * scale)
        resize = padded_size if self.pads else smart_resize
        rows, columns = resize(height, width, self.factor, self.least / self.frames, self.most / self.frames)
        return columns, rows


def smart_resize(height: int, width: int, factor: int, least: float, most: float) -> tuple[int, int]:
    """Computes the (height, width) in pixels that Qwen's image processors choose.

    The sides are multiples of `factor`, the area is within [`least`, `most`], and the aspect is kept as far as that
    allows.

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


def padded_size(height: int, width: int, factor: int, least: float, most: float) -> tuple[int, int]:
    """Computes the (height, width) in pixels of the canvas on which GLM-5's image processor lays a picture.

    Source: `smart_resize` of `transformers.models.glm5_next`, for one picture. Above the limit, the canvas of the
    largest height whose picture of the same aspect still fits.
    """

    def aligned(side: float) -> int:
        return max(1, math.ceil(side / factor)) * factor

    rows, columns = aligned(height), aligned(width)
    if rows * columns < least:
        scale = math.sqrt(least / (height * width))
        rows, columns = aligned(math.ceil(height * scale)), aligned(math.ceil(width * scale))
    if rows * columns <= most:
        return rows, columns
    rows, columns = factor, factor
    low, high = 1, height
    while low <= high:
        middle = (low + high) // 2
        tried = aligned(middle), aligned(max(1, math.floor(width * middle / height)))
        if tried[0] * tried[1] <= most:
            (rows, columns), low = tried, middle + 1
        else:
            high = middle - 1
    return rows, columns


def limits_of(image_processor: Any) -> ImageLimits | None:
    """Returns the limits of a loaded image processor; None for one that does not resize to whole patches by area."""
    size = getattr(image_processor, "size", None) or {}
    least, most = (_entry(size, name) for name in ("shortest_edge", "longest_edge"))
    patch, merged = (int(getattr(image_processor, name, 0) or 0) for name in ("patch_size", "merge_size"))
    if not (getattr(image_processor, "do_resize", False) and patch and merged):
        return None
    tokens = [int(getattr(image_processor, f"{name}_image_tokens", 0) or 0) for name in ("min", "max")]
    if all(tokens):
        return ImageLimits(patch * merged, *(one * (patch * merged) ** 2 for one in tokens), pads=True)
    if not (least and most):
        return None
    frames = int(image_processor.temporal_patch_size) if type(image_processor).__name__.startswith("Glm") else 1
    return ImageLimits(patch * merged, least, most, frames)


def _entry(size: Any, name: str) -> int:
    found = size.get(name) if isinstance(size, dict) else getattr(size, name, None)
    return int(found or 0)


Unit = Literal["thousandths", "fraction", "pixels"]


@dataclass(frozen=True, slots=True)
class CoordinateSpace:
    """Unit of a family's coordinates.

    Args:
        unit: thousandths or fractions of the screen, or pixels of the picture that the checkpoint's processor makes.
        limits: the processor's; pixels need them.
    """

    unit: Unit
    limits: ImageLimits | None = None

    def sides(self, screen: Size) -> tuple[float, float]:
        """Computes width and height of a screen of this size in the unit.

        Raises:
            ValueError: a screen that is too oblong for the processor.
        """
        if self.unit != "pixels":
            return (1000.0, 1000.0) if self.unit == "thousandths" else (1.0, 1.0)
        assert self.limits is not None, "pixels of a picture of unknown size"
        columns, rows = self.limits.resized(screen)
        return float(columns), float(rows)


def picture(png: bytes, limits: ImageLimits | None) -> Image.Image:
    """Decodes a screen as RGB for a model, in the size that a processor of these limits would choose.

    Resampled as the processors do (bicubic), so that the pixels are theirs too.
    """
    image = rgb_of(png)
    return image if limits is None else sized(image, limits)


def sized(image: Image.Image, limits: ImageLimits) -> Image.Image:
    """Resizes a picture to the size that a processor of these limits would choose."""
    size = limits.resized(image.size)
    return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)


@lru_cache(maxsize=32)
def picture_png(png: bytes, limits: ImageLimits | None) -> bytes:
    """Encodes a screen for a server: unchanged if it is plain and of the right size, else as a new PNG.

    The last few are kept, since a screen is sent again with every step whose chat shows it.
    """
    png = stored_plain(png)
    if limits is None or limits.resized(size_of(png)) == size_of(png):
        return png
    return png_of(picture(png, limits))
