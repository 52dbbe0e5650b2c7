"""Pictures from anywhere: their size is known before their pixels are read."""

import struct
import zlib

import pytest

from curation.converters.exchanged import RecordPlace, RecordRefused
from curation.converters.files import picture_of
from tests.fixtures.sentences import Sentences


def png(width: int, height: int) -> bytes:
    """A PNG that says it is so large, with hardly any bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(60_000, 60_000), (2**31 - 1, 1), (16_000, 16_000)])
def test_a_picture_that_would_fill_the_memory_is_refused(width: int, height: int, sentence: Sentences) -> None:
    with sentence.raises(RecordRefused):
        picture_of(png(width, height), RecordPlace("x"), "image")
