"""One picture for everyone: what is stored, what the trainer and the local policy see, and what a server is sent."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from curation.converters.exchanged import Place
from curation.converters.files import picture_of
from environments.openenv.mapping import picture_of as openenv_picture_of
from environments.openenv.mapping import png_of as osworld_png_of
from learning.data.sample import Screenshots, write_screenshots
from learning.engines.fsdp.chats import Chats
from models.families.family import QWEN25
from models.families.screen import ImageLimits, picture, picture_png
from models.random_vlm import build_random
from models.tiny.screens import pixels_of
from schemas.config.sections import PolicyConfig
from schemas.picture import SIGNATURE, is_plain, plain, rgb_of

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
    imported = picture_of(content, Place("x"), "image")
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
