"""Computes the sizes of screens that a checkpoint sees, and converts its units of coordinates.

An image processor of the Qwen kind resizes a screen to whole patches within its own limits of area, and models that
write pixels write pixels of the resized picture. So the limits are read from the checkpoint's processor, never assumed.
This module resizes a screen once, and the network, the server and the trainer all get the resized picture.
`smart_resize` is idempotent, so no processor resizes the picture again.
"""

import math
from collections.abc import Mapping
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
        factor: pixels; both sides become a multiple of it. It is a patch's side times the patches that are merged along
        a side. least, most: bounds of the area in pixels, from the fields `size.shortest_edge` and `size.longest_edge`.
        frames: factor of the area; GLM's processor counts a picture as two frames.
        pads: whether the processor fills a screen up to whole factors, at its right and bottom, instead of stretching
            it (GLM-5's). This module then stretches a screen to the size of the filled picture. So the processor has
            nothing to fill, and a thousandth of the picture is a thousandth of the screen.
    """

    factor: int
    least: int
    most: int
    frames: int = 1
    pads: bool = False

    def resized(self, screen: Size) -> Size:
        """Computes the width and height to which a screen of this size is resized.

        Raises:
            ValueError: one side is over 200 times the other; no processor accepts such a picture.
        """
        width, height = screen
        if (ratio := max(screen) / min(screen)) > MOST_OBLONG:
            raise ValueError(f"a screen of {width}x{height} has sides of ratio {ratio:g}, over {MOST_OBLONG}")
        if self.frames > 1 and min(screen) < self.factor:  # as GLM's processor enlarges a side below one factor
            scale = self.factor / min(screen)
            width, height = int(width * scale), int(height * scale)
        resize = padded_size if self.pads else smart_resize
        rows, columns = resize(height, width, self.factor, self.least / self.frames, self.most / self.frames)
        return columns, rows


def smart_resize(height: int, width: int, factor: int, least: float, most: float) -> tuple[int, int]:
    """Computes the (height, width) in pixels that Qwen's image processors choose.

    The sides are multiples of `factor` and the area is within [`least`, `most`]; the aspect is kept as far as possible.

    Halves are rounded to even, as in Python and unlike in the desktop client's TypeScript. A side below half a factor
    becomes 0 and is then scaled up (`transformers.models.qwen2_vl`).
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

    Source: `smart_resize` of `transformers.models.glm5_next`, for one picture. For an area above the limit, this is the
    canvas with the largest height for which a picture of the same aspect fits.
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
    """Returns the limits of a loaded image processor; None if it does not resize to whole patches by area."""
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


Unit = Literal["thousandths", "999ths", "fraction", "pixels"]
_SIDES: Mapping[Unit, float] = {"thousandths": 1000.0, "999ths": 999.0, "fraction": 1.0}
"""Units along a side of any screen; 999 is the screen's far edge in `999ths`."""


@dataclass(frozen=True, slots=True)
class CoordinateSpace:
    """Unit of a family's coordinates.

    Args:
        unit: thousandths, 999ths or fractions of the screen, or pixels of the picture that the checkpoint's processor
            makes.
        limits: the processor's limits; required for pixels.
    """

    unit: Unit
    limits: ImageLimits | None = None

    def sides(self, screen: Size) -> tuple[float, float]:
        """Computes width and height of a screen of this size in this unit.

        Raises:
            ValueError: the screen is too oblong for the processor.
        """
        if self.unit != "pixels":
            return _SIDES[self.unit], _SIDES[self.unit]
        assert self.limits is not None, "pixels of a picture of unknown size"
        columns, rows = self.limits.resized(screen)
        return float(columns), float(rows)


def picture(png: bytes, limits: ImageLimits | None) -> Image.Image:
    """Decodes a screen as RGB for a model, in the size that a processor of these limits would choose.

    It resamples with the processors' bicubic filter, so that the pixels are equal, too.
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

    A cache holds the last few results, since several steps' chats send the same screen.
    """
    png = stored_plain(png)
    if limits is None or limits.resized(size_of(png)) == size_of(png):
        return png
    return png_of(picture(png, limits))
