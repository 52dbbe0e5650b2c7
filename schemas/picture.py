"""One picture of a screen for everyone: the rule for colour mode, transparency, orientation and bit depth.

A picture is stored as a plain PNG: 8 bits, greyscale, palette or RGB, opaque, upright, one frame. Every reader (a
server, Pillow, the trainer's processor, a browser) makes the same RGB pixels of that. Any other picture becomes a plain
one where it enters (`plain`), and where an older lake has one stored, by the same rule where it is read (`rgb_of`):

- transparent pixels are laid on white, as a browser and vLLM show them;
- the orientation that a camera wrote (EXIF or XMP) is applied;
- 16 bits become 8 by their upper half; CMYK, palettes and greyscale become RGB; of an animation the first frame counts.
"""

import io
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
WHITE = (255, 255, 255)
_OPAQUE = (0, 2, 3)
"""Colour types of a PNG without an alpha channel: greyscale, RGB, palette."""
_CHANGING = (b"tRNS", b"eXIf", b"acTL")
"""Chunks with transparency, an orientation or further frames."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_ORIENTED = (b"XML:com.adobe.xmp", b"Raw profile type")
"""Beginnings of texts that may hold an orientation."""
_TURNING = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif")
_DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def is_plain(content: bytes) -> bool:
    """Whether the bytes are a plain PNG, by its chunks alone; no pixel is decoded."""
    if not content.startswith(SIGNATURE) or len(content) < 33 or content[24] > 8 or content[25] not in _OPAQUE:
        return False
    return not any(
        kind in _CHANGING or (kind in _TEXTS and content[start : start + 20].startswith(_ORIENTED))
        for kind, start in _chunks(content)
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, int]]:
    """Kind and beginning of the data of each chunk."""
    at = len(SIGNATURE)
    while at + 8 <= len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], at + 8
        at += length + 12


def plain(content: bytes, formats: tuple[str, ...] | None = None) -> tuple[bytes, int, int]:
    """A picture that enters, as a plain PNG with its width and height in pixels: its bytes where they are one.

    Args:
        content: its file.
        formats: those that are taken, as Pillow names them; any if not given.

    Raises:
        OSError, ValueError, SyntaxError: as Pillow, for what is no picture.
    """
    if is_plain(content):
        return content, *size_of(content)
    shown = _pixels(content, formats, upright=True)
    return png_of(shown), shown.width, shown.height


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, from a PNG's header."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def stored_plain(png: bytes) -> bytes:
    """A stored PNG as a plain one, as `rgb_of` reads it: its bytes where they are one, or are no PNG."""
    return png if is_plain(png) or not png.startswith(SIGNATURE) else png_of(rgb_of(png))


def rgb_of(png: bytes) -> "Image.Image":
    """The RGB pixels of a stored picture; what an older lake holds is not turned, since its coordinates are of it.

    Raises:
        OSError, ValueError, SyntaxError: as Pillow, for what is no picture.
    """
    return _pixels(png, None, upright=False)


def png_of(image: "Image.Image") -> bytes:
    """An RGB picture as a plain PNG."""
    out = io.BytesIO()
    image.save(out, "png", compress_level=1)
    return out.getvalue()


def _pixels(content: bytes, formats: tuple[str, ...] | None, upright: bool) -> "Image.Image":
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content), formats=formats) as image:
        key: Any = image.info.get("transparency")
        if key is not None and content.startswith(SIGNATURE) and content[24] == 16:
            key = tuple(one >> 8 for one in cast(tuple[int, ...], key)) if isinstance(key, tuple) else key >> 8
        shown = _opaque(image, key)
        if upright:
            shown.info = {name: value for name, value in image.info.items() if name in _TURNING}
            ImageOps.exif_transpose(shown, in_place=True)
    shown.info = {}
    return shown


def _opaque(image: "Image.Image", key: Any) -> "Image.Image":
    """The picture on white; `key` is the colour, or the palette's alpha, that its file calls transparent."""
    from PIL import Image

    if image.mode in _DEEP:  # the upper 8 of 16 bits, as Pillow reads RGB of 16 bits
        wide = image if image.mode == "I;16" else image.convert("I").convert("I;16")
        image = Image.frombytes("L", image.size, wide.tobytes()[1::2])
    elif image.mode not in ("1", "L", "P", "RGB", "LA", "PA", "RGBA", "La", "RGBa"):
        return image.convert("RGB")
    if key is None and image.mode in ("1", "L", "P", "RGB"):
        return image.convert("RGB")
    if key is not None:
        image.info["transparency"] = key
    layer = image.convert("RGBA")
    shown = Image.new("RGB", image.size, WHITE)
    shown.paste(layer, mask=layer.getchannel("A"))
    return shown
