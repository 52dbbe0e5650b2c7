"""The real recogniser on drawn text; what is said where its package is missing."""

import io

import pytest
from PIL import Image, ImageDraw, ImageFont

from models.readers import rapid
from models.readers.rapid import RapidReader
from models.readers.reader import reader_class
from schemas.failure import FlywheelError, UsageError

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


def test_text_is_read_with_its_box_from_top_to_bottom() -> None:
    reader = RapidReader()
    first, second = reader.read(drawn())
    assert (first.name, first.kind, second.name) == ("Sign in", "text", "Submit")
    assert first.box[0] * WIDTH == pytest.approx(20, abs=5) and first.box[1] * HEIGHT == pytest.approx(22, abs=8)
    assert 200 < second.centre[0] * WIDTH < 300 and 150 < second.centre[1] * HEIGHT < 180
    with pytest.raises(FlywheelError, match="no picture"):
        reader.read(b"no picture at all")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapid, "MODULES", ("rapidocr", "no_such_module"))
    with pytest.raises(FlywheelError, match=r"annotate\.reader.*no_such_module") as raised:
        reader_class("rapidocr")
    assert "flywheel[ocr]" in raised.value.hint


def test_page_reads_nothing_and_an_unknown_reader_is_refused() -> None:
    assert reader_class("page") is None
    with pytest.raises(UsageError, match=r"annotate\.reader"):
        reader_class("tesseract")
