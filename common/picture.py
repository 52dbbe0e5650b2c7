"""Reads screen pictures by one rule for colour mode, transparency, orientation and bit depth.

A lake stores each picture as a plain PNG: 8 bits, greyscale, palette or RGB, opaque, upright, one frame, in sRGB. Every
reader (a server, Pillow, the trainer's processor, a browser) decodes a plain PNG to the same RGB pixels. `plain`
converts other pictures before they are stored. Older lakes may have stored other pictures, so `rgb_of` converts them
again when they are read. The conversion:

- lays transparent pixels on white, as a browser and vLLM do;
- applies the orientation of a camera (EXIF or XMP), but only in `plain`;
- keeps the upper 8 of 16 bits;
- converts CMYK, palettes and greyscale to RGB;
- takes the first frame of an animation;
- drops colour profiles and gamma without changing the numbers;
- refuses pictures of floating-point or 32-bit numbers, because their white is unknown.
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
"""Chunks with transparency, orientation, further frames or another colour space."""
_GAMMA, _SRGB = (b"gAMA", b"cHRM"), b"sRGB"
"""Chunks that change colours, and the chunk that overrides them (PNG, third edition, 11.3.2)."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_ORIENTED = (b"XML:com.adobe.xmp", b"Raw profile type")
"""Prefixes of text chunks that may have an orientation."""
_TURNING = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif")
_KEYED = (0, 2)
"""Colour types of a PNG that may declare one colour as transparent: greyscale, RGB."""
_LAYERED = ("LA", "PA", "RGBA", "La", "RGBa")
_DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def is_plain(content: bytes) -> bool:
    """Checks whether the bytes are a plain PNG. Only the chunks are read; no pixel is decoded."""
    if not content.startswith(SIGNATURE) or len(content) < 33 or content[24] > 8 or content[25] not in _OPAQUE:
        return False
    chunks = list(_chunks(content))
    changing = _CHANGING if any(kind == _SRGB for kind, _ in chunks) else (*_CHANGING, *_GAMMA)
    return not any(
        kind in changing or (kind in _TEXTS and content[start : start + 20].startswith(_ORIENTED))
        for kind, start in chunks
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields the kind of each chunk and the offset of its data."""
    at = len(SIGNATURE)
    while at + 8 <= len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], at + 8
        at += length + 12


def plain(content: bytes, formats: tuple[str, ...] | None = None) -> tuple[bytes, int, int]:
    """Converts a picture to a plain PNG, and returns the PNG with its width and height in pixels.

    A picture that is already a plain PNG does not change.

    Args:
        content: bytes of the picture's file.
        formats: accepted formats, by Pillow's names; any format if not given.

    Raises:
        OSError, ValueError, SyntaxError: errors of Pillow; the file is not a picture.
    """
    if is_plain(content):
        return content, *size_of(content)
    shown = upright_rgb_of(content, formats)
    return png_of(shown), shown.width, shown.height


def size_of(png: bytes) -> tuple[int, int]:
    """Reads the width and height in pixels from the header of a PNG."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def stored_plain(png: bytes) -> bytes:
    """Converts a stored PNG to a plain PNG with the pixels of `rgb_of`. Plain PNGs and other files do not change."""
    return png if is_plain(png) or not png.startswith(SIGNATURE) else png_of(rgb_of(png))


def rgb_of(png: bytes) -> "Image.Image":
    """Reads the RGB pixels of a stored picture, without its orientation.

    Coordinates in an older lake belong to the picture before any rotation.

    Raises:
        OSError, ValueError, SyntaxError: errors of Pillow; the file is not a picture.
    """
    return _pixels(png, None, upright=False)


def upright_rgb_of(content: bytes, formats: tuple[str, ...] | None = None) -> "Image.Image":
    """Reads the RGB pixels of a picture, which are also the pixels of its plain PNG. Has the arguments of `plain`."""
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
    """Returns a mask of the pixels with the transparent colour of a greyscale or RGB PNG, at the depth of the file."""
    from PIL import ImageChops

    depth, colour = png[24], cast(tuple[int, ...], key if isinstance(key, tuple) else (key,))
    if depth < 8:  # Pillow scales such values to 8 bits
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
    """Splits a PNG of 16 bits into its upper and its lower 8 bits.

    Pillow keeps only the upper 8 bits of RGB. With the opposite byte order, it keeps the lower 8 bits.
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
    """Converts the picture to RGB and ignores transparency. Raises ValueError if its numbers define no brightness."""
    from PIL import Image

    if image.mode == "F" or (image.mode == "I" and not _fits(image)):
        raise ValueError(f"pixels of mode {image.mode} define no brightness; save the picture with 8 bits a channel")
    if image.mode in _DEEP:  # the upper 8 of 16 bits, as Pillow reads RGB of 16 bits
        wide = image if image.mode == "I;16" else image.convert("I").convert("I;16")
        image = Image.frombytes("L", image.size, wide.tobytes()[1::2])
    return image.convert("RGB")


def _fits(image: "Image.Image") -> bool:
    """Checks whether all numbers of a picture fit into 16 bits."""
    lowest, highest = cast(tuple[int, int], image.getextrema())
    return lowest >= 0 and highest < 1 << 16


def _opaque(image: "Image.Image") -> "Image.Image":
    """Lays the picture on white, using the transparency of its alpha channel or palette."""
    from PIL import Image

    layered = image.mode in _LAYERED or (image.mode in ("P", "L", "RGB") and "transparency" in image.info)
    if not layered:
        return _rgb(image)
    layer = image.convert("RGBA")
    shown = Image.new("RGB", image.size, WHITE)
    shown.paste(layer, mask=layer.getchannel("A"))
    return shown
