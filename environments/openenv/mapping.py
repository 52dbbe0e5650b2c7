"""Map another environment's messages to this project's: the path of the screenshot, and the form of actions."""

import base64
import binascii
import io
import string
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.picture import is_plain, plain
from common.picture import png_of as png_of_rgb
from schemas import action as act
from schemas.keyboard import names_of

LARGEST = 16_384
"""Maximum pixels of a screen's side."""
MOST_PIXELS = 2**25
"""Maximum pixels of a screen: 8K has fewer."""
_SIGNATURE, _END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
_POINTS = ("x", "y", "to_x", "to_y")
_AWAY = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}


def found(data: Mapping[str, Any], path: str) -> Any:
    """Returns the value at a dotted path such as `metadata.error`; None if there is none."""
    here: Any = data
    for name in path.split("."):
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def picture_of(value: Any) -> tuple[bytes, int, int]:
    """Converts a screenshot to PNG, with its width and height in pixels.

    Args:
        value: base64 of a PNG or JPEG, with or without `data:...;base64,` before it, or rows of pixels (height, width,
            3) of whole numbers from 0 to 255.

    Raises:
        ValueError: the value is none of these; the message names the problem.
    """
    if isinstance(value, list):
        return _drawn(value)
    if not isinstance(value, str) or not value:
        raise ValueError(f"is {type(value).__name__}, not an image")
    try:
        content = base64.b64decode(value.partition(",")[2] if value.startswith("data:") else value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("is text, but not base64") from error
    return png_of(content)


def png_of(content: bytes) -> tuple[bytes, int, int]:
    """Converts the bytes of a picture to a plain PNG (`common.picture`), with its width and height in pixels.

    A plain PNG is only checked by its checksums, since decoding (`decode`) takes 20 ms for a screen of 1920 x 1080.

    Raises:
        ValueError: the bytes are no picture; the message names the problem.
    """
    if not content.startswith(_SIGNATURE):
        return _as_png(content, ("JPEG", "WEBP", "GIF", "BMP"))
    if len(content) < 33 or not content.endswith(_END):
        raise ValueError("is a PNG that is cut short")
    width, height = struct.unpack(">II", content[16:24])
    if not (0 < width <= LARGEST and 0 < height <= LARGEST and width * height <= MOST_PIXELS):
        raise ValueError(f"is a picture of {width} x {height} pixels")
    _open(content, whole=False)
    return (content, width, height) if is_plain(content) else _as_png(content, ("PNG",))


def decode(png: bytes) -> None:
    """Decodes a PNG; raises ValueError if that fails."""
    _open(png, whole=True)


def _open(png: bytes, whole: bool) -> None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
            _ = picture.load() if whole else picture.verify()
    except Exception as error:  # Pillow raises SyntaxError, zlib.error, struct.error and more for a broken file
        raise ValueError(f"is a broken PNG: {error}"[:200]) from error


def _drawn(rows: list[Any]) -> tuple[bytes, int, int]:
    import numpy as np
    from PIL import Image

    try:
        pixels = np.asarray(rows)
    except ValueError as error:
        raise ValueError("is a list whose rows differ") from error
    if pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape or pixels.dtype.kind not in "iu":
        raise ValueError(f"is a list of shape {pixels.shape}, and not (height, width, 3) of whole numbers")
    if pixels.min() < 0 or pixels.max() > 255:
        raise ValueError("has pixels outside 0 to 255")
    return png_of_rgb(Image.fromarray(pixels.astype(np.uint8))), pixels.shape[1], pixels.shape[0]


def _as_png(content: bytes, formats: tuple[str, ...]) -> tuple[bytes, int, int]:
    from PIL import Image

    try:
        return plain(content, formats)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("is not an image") from error


def names_for(kind: str) -> frozenset[str]:
    """Returns the valid names in braces for the fields of an action of this type (see `values_of`)."""
    fields = set(act.TYPES[kind].model_fields)
    fields |= {f"{name}_px" for name in _POINTS if name in fields} | {"width", "height"}
    fields |= {"across", "down"} if "direction" in fields else set()
    return frozenset(fields | {"keys"} if "key" in fields else fields)


def values_of(action: act.Action, width: int, height: int) -> dict[str, Any]:
    """Returns the values for an action's template. These are the action's fields, its points in whole pixels of the
    screen (`x_px` and so on), the direction of a scroll as `across` and `down` (-1, 0 or 1), the keys of a hotkey as
    the list `keys`, and the screen's `width` and `height`. An optional field without a value is None."""
    values: dict[str, Any] = {name: getattr(action, name) for name in type(action).model_fields}
    values |= {"width": width, "height": height}
    for name in _POINTS:
        if name in values:
            side = width if name.endswith("x") else height
            values[f"{name}_px"] = None if values[name] is None else min(int(values[name] * side), side - 1)
    if "direction" in values:
        values["across"], values["down"] = _AWAY[values["direction"]]
    if "key" in values:
        values["keys"] = names_of(values["key"])
    return values


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Fills the braces of a template: a text that is only `{name}` becomes the value, including numbers and lists. In
    other texts, the value becomes text, or a Python literal for `{name!r}`."""
    if isinstance(template, Mapping):
        return {key: filled(one, values) for key, one in template.items()}
    if isinstance(template, list | tuple):
        return [filled(one, values) for one in template]
    if not isinstance(template, str):
        return template
    if template[:1] == "{" and template[-1:] == "}" and template[1:-1] in values:
        return values[template[1:-1]]
    return template.format_map(values)


def unknown_names(kind: str, template: Any) -> list[str]:
    """Returns the names in braces that are invalid for this type of action; raises ValueError for unbalanced braces."""
    parts = (part for text in _texts(template) for part in string.Formatter().parse(text))
    return sorted({name for _, name, _, _ in parts if name is not None} - names_for(kind))


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping | Sequence):
        for one in template.values() if isinstance(template, Mapping) else template:
            yield from _texts(one)
