"""The real recogniser on drawn text; what is said where its package is missing."""

import io
import logging
from itertools import pairwise

import pytest
from PIL import Image, ImageDraw, ImageFont

from models import readers as rapid
from models.readers import RapidReader, reader_class
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.text_sizes import drawn as drawn_screen
from tests.fixtures.text_sizes import read_of

WIDTH, HEIGHT = 320, 200


def drawn() -> bytes:
    picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(picture)
    pen.text((20, 20), "Sign in", fill="black", font=ImageFont.load_default(16))
    pen.rectangle((200, 150, 300, 180), fill=(40, 90, 200))
    pen.text((220, 156), "Submit", fill="white", font=ImageFont.load_default(14))
    out = io.BytesIO()
    picture.save(out, "png")
    return out.getvalue()


@pytest.fixture(scope="module")
def reader() -> RapidReader:
    return RapidReader()


def test_text_is_read_with_its_box_from_top_to_bottom(reader: RapidReader) -> None:
    first, second = reader.read(drawn())
    assert (first.name, first.kind, second.name) == ("Sign in", "text", "Submit")
    assert first.box[0] * WIDTH == pytest.approx(20, abs=5) and first.box[1] * HEIGHT == pytest.approx(22, abs=8)
    assert 200 < second.centre[0] * WIDTH < 300 and 150 < second.centre[1] * HEIGHT < 180
    with pytest.raises(FlywheelError, match="is not an image"):
        reader.read(b"no picture at all")


@pytest.mark.parametrize(
    ("size", "letters", "button"),
    [
        ((390, 844), 16, False),
        pytest.param((1280, 720), 12, False, marks=pytest.mark.nightly),
        pytest.param((1920, 1080), 12, True, marks=pytest.mark.nightly),
    ],
)
def test_a_lone_label_or_button_of_a_large_screen_is_read(
    size: tuple[int, int], letters: int, button: bool, reader: RapidReader
) -> None:
    screen = drawn_screen(*size, letters, 1, button, 0)
    assert read_of(reader, screen) == 1


@pytest.mark.nightly
def test_small_text_is_read_wherever_it_stands_on_a_screen_wider_than_rapidocr_shrinks(reader: RapidReader) -> None:
    picture, pen_at = Image.new("RGB", (3840, 1000), "white"), [(100, 60), (700, 60), (1900, 500), (3600, 940)]
    for number, place in enumerate(pen_at):
        ImageDraw.Draw(picture).text(place, f"Label {number}7", fill="black", font=ImageFont.load_default(11))
    out = io.BytesIO()
    picture.save(out, "png")
    assert {one.name for one in reader.read(out.getvalue())} == {f"Label {number}7" for number in range(4)}


@pytest.mark.slow
def test_a_line_across_the_edges_of_tiles_is_one_line(reader: RapidReader) -> None:
    picture = Image.new("RGB", (1400, 400), "white")
    text = "The quick brown fox jumps over the lazy dog while nine other animals are watching"
    ImageDraw.Draw(picture).text((150, 200), text, fill="black", font=ImageFont.load_default(28))
    out = io.BytesIO()
    picture.save(out, "png")
    (line,) = reader.read(out.getvalue())
    assert reader.read(out.getvalue()) == [line]
    assert line.name.replace(" ", "") == text.replace(" ", "")
    assert line.box[0] * 1400 == pytest.approx(150, abs=8) and line.box[2] * 1400 > 1150


def test_a_toolbar_many_times_as_wide_as_high_is_read(reader: RapidReader) -> None:
    picture = Image.new("RGB", (1280, 60), "white")
    for number, name in enumerate(("File", "Edit", "View")):
        ImageDraw.Draw(picture).text((40 + 300 * number, 20), name, fill="black", font=ImageFont.load_default(16))
    out = io.BytesIO()
    picture.save(out, "png")
    assert [one.name for one in reader.read(out.getvalue())] == ["File", "Edit", "View"]


@pytest.mark.parametrize("side", [1, 735, 736, 737, 1000, 1343, 1345, 5120])
def test_tiles_cover_a_screen_and_share_enough(side: int) -> None:
    starts = rapid._starts(side, rapid.SIDE)
    assert starts[0] == 0 and starts[-1] + rapid.SIDE >= side
    assert all(after - before <= rapid.SIDE - rapid.OVERLAP for before, after in pairwise(starts))


def test_a_screen_larger_than_those_measured_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    out = io.BytesIO()
    Image.new("RGB", (5120, 2880), "white").save(out, "png")
    reader = RapidReader()
    with caplog.at_level(logging.WARNING):
        assert reader.read(out.getvalue()) == reader.read(out.getvalue()) == []
    (line,) = [record.getMessage() for record in caplog.records if "rapidocr" in record.getMessage()]
    assert "5120 x 2880" in line and "docs/perception.md" in line


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapid, "MODULES", ("rapidocr", "no_such_module"))
    with pytest.raises(FlywheelError, match=r"annotate\.reader.*no_such_module") as raised:
        reader_class("rapidocr")
    assert "flywheel[ocr]" in raised.value.hint


def test_page_reads_nothing_and_an_unknown_reader_is_refused() -> None:
    assert reader_class("page") is None
    with pytest.raises(UsageError, match=r"annotate\.reader"):
        reader_class("tesseract")
