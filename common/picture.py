"""Reads screen pictures by one rule for colour mode, transparency, orientation and bit depth.

A picture is stored as a plain PNG: 8 bits, greyscale, palette or RGB, opaque, upright, one frame, in sRGB. Every
reader (a server, Pillow, the trainer's processor, a browser) makes the same RGB pixels of that. Any other picture
becomes a plain one where it enters (`plain`), and where an older lake has one stored, by the same rule where it is
read (`rgb_of`):

- transparent pixels are laid on white, as a browser and vLLM show them;
- the orientation that a camera wrote (EXIF or XMP) is applied;
- 16 bits become 8 by their upper half; CMYK, palettes and greyscale become RGB; of an animation the first frame counts;
- numbers stay as they are where a colour profile or a gamma would have a browser show others: the profile is dropped;
- a picture of floating-point or 32-bit numbers is refused, since its white is unknown.
"""

import io
import struct
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
WHITE = (255, 255, 255)
_OPAQUE = (0, 2, 3)
"""Colour types of a PNG without an alpha channel: greyscale, RGB, palette."""
_CHANGING = (b"tRNS", b"eXIf", b"acTL", b"iCCP", b"cICP")
"""Chunks with transparency, an orientation, further frames or another colour space."""
_GAMMA, _SRGB = (b"gAMA", b"cHRM"), b"sRGB"
"""Chunks that readers of colours heed, and the one that makes them ignore these (PNG, third edition, 11.3.2)."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_ORIENTED = (b"XML:com.adobe.xmp", b"Raw profile type")
"""Beginnings of texts that may hold an orientation."""
_TURNING = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif")
_KEYED = (0, 2)
"""Colour types of a PNG that may call one colour transparent: greyscale, RGB."""
_LAYERED = ("LA", "PA", "RGBA", "La", "RGBa")
_DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def is_plain(content: bytes) -> bool:
    """Checks whether the bytes are a plain PNG, by its chunks alone; no pixel is decoded."""
    if not content.startswith(SIGNATURE) or len(content) < 33 or content[24] > 8 or content[25] not in _OPAQUE:
        return False
    chunks = list(_chunks(content))
    changing = _CHANGING if any(kind == _SRGB for kind, _ in chunks) else (*_CHANGING, *_GAMMA)
    return not any(
        kind in changing or (kind in _TEXTS and content[start : start + 20].startswith(_ORIENTED))
        for kind, start in chunks
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields kind and beginning of the data of each chunk."""
    at = len(SIGNATURE)
    while at + 8 <= len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], at + 8
        at += length + 12


def plain(content: bytes, formats: tuple[str, ...] | None = None) -> tuple[bytes, int, int]:
    """Converts a picture to a plain PNG with its width and height in pixels: its bytes where they are one.

    Args:
        content: its file.
        formats: those that are taken, as Pillow names them; any if not given.

    Raises:
        OSError, ValueError, SyntaxError: as Pillow, for a file that is no picture.
    """
    if is_plain(content):
        return content, *size_of(content)
    shown = upright_rgb_of(content, formats)
    return png_of(shown), shown.width, shown.height


def size_of(png: bytes) -> tuple[int, int]:
    """Reads width and height in pixels from a PNG's header."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def stored_plain(png: bytes) -> bytes:
    """Converts a stored PNG to a plain one, as `rgb_of` reads it: its bytes where they are one, or are no PNG."""
    return png if is_plain(png) or not png.startswith(SIGNATURE) else png_of(rgb_of(png))


def rgb_of(png: bytes) -> "Image.Image":
    """Reads the RGB pixels of a stored picture; does not turn it, since an older lake's coordinates are of it as it is.

    Raises:
        OSError, ValueError, SyntaxError: as Pillow, for a file that is no picture.
    """
    return _pixels(png, None, upright=False)


def upright_rgb_of(content: bytes, formats: tuple[str, ...] | None = None) -> "Image.Image":
    """Reads a picture's RGB pixels as those of its plain PNG; arguments and errors as of `plain`."""
    return _pixels(content, formats, upright=True)


def png_of(image: "Image.Image") -> bytes:
    """Encodes an RGB picture as a plain PNG."""
    out = io.BytesIO()
    image.save(out, "png", compress_level=1)
    return out.getvalue()


def _pixels(content: bytes, formats: tuple[str, ...] | None, upright: bool) -> "Image.Image":
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content), formats=formats) as image:
        key: Any = image.info.get("transparency")
        if key is not None and content.startswith(SIGNATURE) and content[25] in _KEYED:
            shown = _rgb(image)
            shown.paste(WHITE, mask=_keyed(image, key, content))
        else:
            shown = _opaque(image)
        if upright:
            shown.info = {name: value for name, value in image.info.items() if name in _TURNING}
            ImageOps.exif_transpose(shown, in_place=True)
    shown.info = {}
    return shown


def _keyed(image: "Image.Image", key: Any, png: bytes) -> "Image.Image":
    """Finds where a greyscale or RGB PNG has its one transparent colour, at the depth of its file."""
    from PIL import ImageChops

    depth, colour = png[24], cast(tuple[int, ...], key if isinstance(key, tuple) else (key,))
    if depth < 8:  # Pillow gives them scaled to 8
        most = (1 << depth) - 1
        parts = [(image.convert("L"), (colour[0] & most) * 255 // most)]
    elif depth == 8:
        parts = [(band, one & 0xFF) for band, one in zip(image.split(), colour, strict=True)]
    else:
        bands = [band for half in _halves(image, png) for band in half.split()]
        parts = list(zip(bands, [one >> by & 0xFF for by in (8, 0) for one in colour], strict=True))
    same = [band.point([255 * (value == part) for value in range(256)]) for band, part in parts]
    return reduce(ImageChops.darker, same)


def _halves(image: "Image.Image", png: bytes) -> "tuple[Image.Image, Image.Image]":
    """Splits a PNG of 16 bits into its upper and its lower 8.

    Pillow keeps the upper half of RGB alone; where it is asked to take the bytes in the other order, it is the lower.
    """
    from PIL import Image

    if image.mode != "RGB":
        both = image.tobytes()
        return Image.frombytes("L", image.size, both[1::2]), Image.frombytes("L", image.size, both[0::2])
    other: Any
    with Image.open(io.BytesIO(png)) as other:
        other.tile = [tile._replace(args="RGB;16L") for tile in other.tile]
        other.load()
    return image, other


def _rgb(image: "Image.Image") -> "Image.Image":
    """Converts the picture without regard to transparency; raises ValueError where its numbers define no brightness."""
    from PIL import Image

    if image.mode == "F" or (image.mode == "I" and not _fits(image)):
        raise ValueError(f"pixels of mode {image.mode} define no brightness; save the picture with 8 bits a channel")
    if image.mode in _DEEP:  # the upper 8 of 16 bits, as Pillow reads RGB of 16 bits
        wide = image if image.mode == "I;16" else image.convert("I").convert("I;16")
        image = Image.frombytes("L", image.size, wide.tobytes()[1::2])
    return image.convert("RGB")


def _fits(image: "Image.Image") -> bool:
    """Checks whether all numbers of a picture are of 16 bits."""
    lowest, highest = cast(tuple[int, int], image.getextrema())
    return lowest >= 0 and highest < 1 << 16


def _opaque(image: "Image.Image") -> "Image.Image":
    """Lays the picture on white, by its alpha channel or that of its palette."""
    from PIL import Image

    layered = image.mode in _LAYERED or (image.mode in ("P", "L", "RGB") and "transparency" in image.info)
    if not layered:
        return _rgb(image)
    layer = image.convert("RGBA")
    shown = Image.new("RGB", image.size, WHITE)
    shown.paste(layer, mask=layer.getchannel("A"))
    return shown
