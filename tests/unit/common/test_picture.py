"""One picture for everyone: what is stored, what the trainer and the local policy see, and what a server is sent."""

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from common.picture import SIGNATURE, is_plain, plain, rgb_of, upright_rgb_of
from curation.converters.exchanged import RecordPlace
from curation.converters.files import picture_of
from environments.openenv.mapping import picture_of as openenv_picture_of
from environments.openenv.mapping import png_of as osworld_png_of
from learning.data.sample import Screenshots, write_screenshots
from learning.engines.fsdp.chats import Chats
from models.families.family import QWEN25
from models.families.screen import ImageLimits, picture, picture_png
from models.random_vlm import build_random
from models.tiny.build import pixels_of
from schemas.config.policy import PolicyConfig

WIDE, HIGH = 60, 40
LIMITS = ImageLimits(28, 28 * 28 * 4, 28 * 28 * 6)


def drawn(mode: str) -> Image.Image:
    """A picture with a corner of another colour, half of it transparent where the mode can be."""
    rgba = Image.new("RGBA", (WIDE, HIGH), (200, 30, 60, 255))
    rgba.paste((10, 220, 40, 255), (0, 0, 20, 10))
    rgba.paste((90, 90, 250, 0), (30, 20, 60, 40))
    rgba.paste((0, 0, 0, 128), (0, 20, 30, 40))
    if mode == "I;16":
        return Image.frombytes("I;16", (WIDE, HIGH), np.linspace(0, 65535, WIDE * HIGH).astype("<u2").tobytes())
    return rgba.quantize(8) if mode == "P" else rgba.convert(mode)


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def turned(orientation: int, kind: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return file_of(drawn("RGB"), kind, exif=exif.tobytes())


CASES: dict[str, bytes] = {
    **{mode: file_of(drawn(mode)) for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16")},
    "L with a transparent grey": file_of(Image.new("L", (WIDE, HIGH), 77), transparency=77),
    "RGB with a transparent colour": file_of(drawn("RGB"), transparency=(10, 220, 40)),
    "16 bits with a transparent grey": file_of(Image.new("I;16", (WIDE, HIGH), 0x8044), transparency=0x8044),
    "palette with alpha": file_of(drawn("P"), transparency=bytes([0, 128, 255, 255])),
    "turned PNG": turned(6, "PNG"),
    "animation": file_of(drawn("RGB"), save_all=True, append_images=[Image.new("RGB", (WIDE, HIGH))]),
    "turned JPEG": turned(8, "JPEG"),
    "CMYK JPEG": file_of(drawn("CMYK"), "JPEG"),
    "grey JPEG": file_of(drawn("L"), "JPEG"),
    "WEBP with alpha": file_of(drawn("RGBA"), "WEBP", lossless=True),
    "turned WEBP": turned(3, "WEBP"),
    "GIF with a transparent colour": file_of(drawn("P"), "GIF", transparency=0),
    "BMP": file_of(drawn("RGB"), "BMP"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_picture_is_the_same_wherever_it_enters_and_wherever_it_is_read(name: str, tmp_path: Path) -> None:
    content = CASES[name]
    imported = picture_of(content, RecordPlace("x"), "image")
    stored, width, height = osworld_png_of(content)
    assert (imported.png, imported.width, imported.height) == (stored, width, height) == plain(content)
    assert openenv_picture_of(base64.b64encode(content).decode()) == (stored, width, height)
    assert is_plain(stored)
    pixels = np.asarray(rgb_of(stored))
    assert pixels.shape == (height, width, 3)
    assert np.array_equal(pixels_of(stored), pixels)  # the small policy
    for limits in (None, LIMITS, QWEN25):
        seen = np.asarray(picture(stored, limits))  # the local policy and the trainer
        sent = picture_png(stored, limits)
        assert is_plain(sent)
        for mode in ("RGB", "RGBA"):  # whichever a server's reader asks for first
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(sent)).convert(mode).convert("RGB")), seen)


@pytest.mark.parametrize("name", [name for name, content in CASES.items() if content.startswith(SIGNATURE)])
def test_what_an_older_lake_holds_is_one_picture_for_the_policy_the_trainer_and_the_server(name: str) -> None:
    content = CASES[name]
    for limits in (None, LIMITS):
        sent = Image.open(io.BytesIO(picture_png(content, limits))).convert("RGB")
        assert np.array_equal(np.asarray(sent), np.asarray(picture(content, limits)))
    assert np.array_equal(pixels_of(content), np.asarray(picture(content, None)))


def test_transparency_is_white_orientation_is_applied_and_16_bits_are_scaled() -> None:
    """White as vLLM 0.33 (`vllm/multimodal/image.py`, `rgba_to_rgb`) and browsers show it."""
    clear = rgb_of(CASES["RGBA"])
    assert clear.getpixel((45, 30)) == (255, 255, 255) and clear.getpixel((10, 30)) == (127, 127, 127)
    assert clear.getpixel((5, 5)) == (10, 220, 40) and clear.getpixel((40, 5)) == (200, 30, 60)
    for name in ("L with a transparent grey", "16 bits with a transparent grey"):
        assert rgb_of(CASES[name]).getpixel((3, 3)) == (255, 255, 255)
    assert rgb_of(CASES["RGB with a transparent colour"]).getpixel((5, 5)) == (255, 255, 255)
    assert plain(CASES["turned PNG"])[1:] == plain(CASES["turned JPEG"])[1:] == (HIGH, WIDE)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(CASES["turned WEBP"])))
    assert np.array_equal(np.asarray(rgb_of(plain(CASES["turned WEBP"])[0])), np.asarray(upright.convert("RGB")))
    ramp = np.asarray(rgb_of(CASES["I;16"]))[..., 0].ravel()
    assert np.array_equal(ramp, (np.linspace(0, 65535, WIDE * HIGH).astype("<u2") >> 8).astype(np.uint8))
    assert rgb_of(CASES["animation"]).getpixel((40, 5)) == (200, 30, 60)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_by_hand(
    samples: Any, depth: int, key: tuple[int, ...] | None = None, interlaced: bool = False, *more: bytes
) -> bytes:
    """A greyscale (rows of numbers) or RGB (rows of triples) PNG of a depth, with a transparent colour."""
    pixels = np.array(samples)
    height, width = pixels.shape[:2]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    rows = b""
    for x, y, across, down in passes:
        for row in pixels[y::down, x::across]:
            bits = "".join(f"{int(one):0{depth}b}" for one in row.ravel())
            bits += "0" * (-len(bits) % 8)
            rows += b"\0" + int(bits, 2).to_bytes(len(bits) // 8) if bits else b""
    head = struct.pack(">IIBBBBB", width, height, depth, 2 if pixels.ndim == 3 else 0, 0, 0, int(interlaced))
    hidden = chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)) if key else b""
    end = hidden + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return SIGNATURE + chunk(b"IHDR", head) + b"".join(more) + end


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column and row, and steps, of each pass (PNG, third edition, 8.1)."""


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_the_one_grey_that_a_file_calls_transparent_is_white_at_every_depth(depth: int, interlaced: bool) -> None:
    most = (1 << depth) - 1
    key = min(most, 0x4512) if depth > 1 else 0
    near = {0, most, key, key ^ 1, max(0, key - 1)}
    row = sorted(near) * 3
    content = png_by_hand([row, row[::-1]], depth, (key,), interlaced)
    seen = np.asarray(upright_rgb_of(content))[..., 0]
    eight = [255 if one == key else one >> 8 if depth == 16 else one * 255 // most for one in row]
    assert seen.tolist() == [eight, eight[::-1]]
    assert np.array_equal(np.asarray(rgb_of(content))[..., 0], seen)
    assert np.array_equal(np.asarray(rgb_of(plain(content)[0]))[..., 0], seen)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth", [8, 16])
def test_only_the_very_colour_that_a_file_calls_transparent_is_white(depth: int, interlaced: bool) -> None:
    key = (0x0A, 0xDC, 0x28) if depth == 8 else (0x0A11, 0xDC22, 0x2833)
    others = [tuple(one ^ (at == changed) for at, one in enumerate(key)) for changed in range(3)]
    row = [key, *others, (0, 0, 0), key]
    seen = np.asarray(rgb_of(png_by_hand([row] * 3, depth, key, interlaced)))
    eight = [[255] * 3 if one == key else [part >> (depth - 8) for part in one] for one in row]
    assert seen.tolist() == [eight] * 3


@pytest.mark.parametrize("mode", ["F", "I"])
def test_a_picture_of_numbers_that_say_no_brightness_is_refused(mode: str) -> None:
    numbers = Image.new(mode, (4, 3), 0.5 if mode == "F" else 70000)
    with pytest.raises(ValueError, match=f"mode {mode} .* 8 bits"):
        plain(file_of(numbers, "TIFF"))
    sixteen = file_of(Image.new("I", (4, 3), 0x8044), "TIFF")
    assert rgb_of(plain(sixteen)[0]).getpixel((0, 0)) == (0x80,) * 3


PROFILE = zlib.compress(b"any profile")
SPACES = {
    "iCCP": (chunk(b"iCCP", b"P3\0\0" + PROFILE),),
    "gAMA": (chunk(b"gAMA", struct.pack(">I", 100000)),),
    "cHRM": (chunk(b"cHRM", struct.pack(">8I", *range(30000, 38000, 1000))),),
    "cICP": (chunk(b"cICP", bytes([12, 13, 0, 1])),),
    "sRGB and gAMA": (chunk(b"sRGB", b"\0"), chunk(b"gAMA", struct.pack(">I", 45455))),
    "sRGB and iCCP": (chunk(b"sRGB", b"\0"), chunk(b"iCCP", b"P3\0\0" + PROFILE)),
}


@pytest.mark.parametrize("name", SPACES)
def test_numbers_of_colours_stay_and_what_would_show_others_in_a_browser_is_dropped(name: str) -> None:
    """Which chunk counts beside which: PNG, third edition, 4.3."""
    row = [(10, 220, 40), (200, 30, 60)]
    content = png_by_hand([row], 8, None, False, *SPACES[name])
    stored = plain(content)[0]
    assert (stored == content) == is_plain(content) == (name == "sRGB and gAMA")
    assert np.asarray(rgb_of(stored)).tolist() == np.asarray(rgb_of(content)).tolist() == [[list(one) for one in row]]
    assert stored == content or not any(kind in stored for kind in (b"iCCP", b"gAMA", b"cHRM", b"cICP"))


def test_a_plain_picture_keeps_its_bytes() -> None:
    for name in ("RGB", "L", "P" if is_plain(CASES["P"]) else "1", "1"):
        assert plain(CASES[name])[0] == CASES[name]


def test_the_trainer_sees_a_transparent_picture_on_white(tmp_path: Path) -> None:
    build_random("qwen3_vl", ["Click."], 0, tmp_path / "model")
    write_screenshots(tmp_path / "screens.parquet", {"a": CASES["RGBA"], "b": plain(CASES["RGBA"])[0]})
    chats = Chats(tmp_path / "model", PolicyConfig(), Screenshots(tmp_path / "screens.parquet"), 0)
    (old, _), (new, _) = chats.pixels("a"), chats.pixels("b")
    black = chats.processor.image_processor(images=[drawn("RGBA").convert("RGB")], return_tensors="pt")
    assert old.equal(new) and not old.equal(black["pixel_values"])
