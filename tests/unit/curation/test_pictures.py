"""What pictures look like in bits: noise and cursors change few, another text or place changes many."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from curation.pictures import BITS, bits_of, detail, difference_hash, edges


def page(text: str = "Click the button", x: int = 40, shade: int = 255) -> Image.Image:
    image = Image.new("RGB", (160, 210), (shade,) * 3)
    pen = ImageDraw.Draw(image)
    pen.multiline_text((4, 4), text, fill="black")
    pen.rectangle((x, 100, x + 48, 124), fill=(40, 160, 60), outline="black")
    return image


def distance(one: Image.Image, other: Image.Image) -> int:
    def bits(image: Image.Image) -> int:
        stream = io.BytesIO()
        image.save(stream, "png")
        found = bits_of(difference_hash(stream.getvalue()))
        assert found is not None
        return found

    return (bits(one) ^ bits(other)).bit_count()


def noisy(image: Image.Image) -> Image.Image:
    noise = np.random.default_rng(0).normal(0, 2, (*image.size[::-1], 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def with_cursor(image: Image.Image) -> Image.Image:
    ImageDraw.Draw(image).polygon([(90, 60), (90, 70), (96, 67)], fill="black")
    return image


@pytest.mark.parametrize("other", [page(), noisy(page()), with_cursor(page()), page(shade=250)])
def test_the_same_page_taken_otherwise_differs_in_few_bits(other: Image.Image) -> None:
    assert distance(page(), other) <= 8


@pytest.mark.parametrize("other", [page(x=60), page("Type a word\nand then click\nthe button below"), page(x=200)])
def test_another_page_differs_in_many_bits(other: Image.Image) -> None:
    assert distance(page(), other) > 8


def test_a_plain_screen_has_no_bits_and_a_hash_of_another_kind_is_not_compared() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (1920, 1080), "white").save(stream, "png")
    assert difference_hash(stream.getvalue()) == "0" * (BITS // 4)
    assert bits_of("0" * 16) is None and bits_of("") is None


LARGE = [(1280, 720), (1920, 1080), (2560, 1440)]


def form(size: tuple[int, int], *fields: tuple[int, int]) -> Image.Image:
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    for number, (x, y) in enumerate(fields):
        pen.rectangle((x, y, x + 240, y + 32), outline="black")
        pen.text((x + 6, y + 8), f"Field {number}", fill="black")
    return image


@pytest.mark.parametrize("size", LARGE)
def test_two_forms_on_a_large_screen_are_told_apart_closely_and_one_with_a_cursor_is_not(size: tuple[int, int]) -> None:
    one, other = form(size, (100, 100), (100, 180)), form(size, (700, 400), (820, 520))
    assert (edges(one) ^ edges(other)).bit_count() <= 8 and not detail(one).like(detail(other), 8)
    for same in (with_cursor(form(size, (100, 100), (100, 180))), noisy(one)):
        assert detail(one).like(detail(same), 8)
    assert not detail(one).like(detail(one.resize((800, 600))), BITS)


def painted(size: tuple[int, int], colour: str, wide: int = 20) -> Image.Image:
    """A form with a square and a word of one colour."""
    image = form(size, (100, 100)) if size in LARGE else page()
    pen = ImageDraw.Draw(image)
    pen.rectangle((71, 75, 71 + wide, 75 + wide), fill=colour)
    pen.text((4, 150), "Click me", fill=colour)
    return image


@pytest.mark.parametrize("size", [(160, 210), *LARGE])
@pytest.mark.parametrize(
    ("one", "other"), [("red", "blue"), ("#e00000", "#00a000"), ("orange", "red"), ("red", "#8b0000")]
)
def test_screens_that_differ_in_colour_alone_are_told_apart(size: tuple[int, int], one: str, other: str) -> None:
    assert (edges(painted(size, one)) ^ edges(painted(size, other))).bit_count() <= 8
    assert not detail(painted(size, one)).like(detail(painted(size, other)), 8)
    assert not detail(Image.new("RGB", size, one)).like(detail(Image.new("RGB", size, other)), 8)


@pytest.mark.parametrize("size", [(160, 210), *LARGE])
def test_a_coloured_screen_with_noise_a_cursor_or_another_encoder_is_the_same(size: tuple[int, int]) -> None:
    one, stream = painted(size, "red", wide=60), io.BytesIO()
    one.save(stream, "JPEG", quality=75)
    for same in (noisy(one), with_cursor(one.copy()), Image.open(stream)):
        assert detail(one).like(detail(same), 8)


@pytest.mark.parametrize("size", LARGE)
def test_what_is_on_a_large_screen_spreads_and_what_turns_on_a_loading_one_does_not(size: tuple[int, int]) -> None:
    wide, high = size
    empty, turning, waiting = (Image.new("RGB", size, "white") for _ in range(3))
    ImageDraw.Draw(turning).arc((wide // 2 - 24, high // 2 - 24, wide // 2 + 24, high // 2 + 24), 0, 270, "gray", 4)
    ImageDraw.Draw(waiting).text((wide // 2, high // 2), "Loading...", fill="black")
    assert detail(empty).spread == 0 and all(0 < detail(one).spread <= 7 for one in (turning, waiting))
    terminal = Image.new("RGB", size, "black")
    ImageDraw.Draw(terminal).text((4, 4), "user@host:~$ ls -l", fill="white")
    for readable in (form(size, (500, 300)), terminal):
        assert edges(readable).bit_count() <= 8 and detail(readable).spread > 7
