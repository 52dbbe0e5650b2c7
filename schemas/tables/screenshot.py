"""Define the table `screenshots`: pictures, each stored once under the sha256 of its PNG bytes."""

from schemas.table import Blob, Int32, Row, Table, Text, between, matches, not_null, unique


class Screenshot(Row):
    """One distinct picture, stored once."""

    sha256: Text
    iteration: Int32
    """First iteration that stored this picture."""
    png: Blob
    width: Int32
    height: Int32
    phash: Text
    """512-bit difference hash in hex (`curation/pictures.py`). The hashes of similar pictures differ in few bits.
    Pictures from schema versions before 3 have a 64-bit average hash, which cannot distinguish the pages of a site."""


TABLE = Table(
    name="screenshots",
    row=Screenshot,
    key=("sha256",),
    partition_by=("iteration",),
    expectations=(
        unique(("sha256",)),
        *not_null("png", because="a missing picture breaks every step that refers to it"),
        matches("sha256", r"^[0-9a-f]{64}$", because="the key is the hash of the content"),
        between("width", 1, 16384, because="a picture has at least one pixel"),
        between("height", 1, 16384, because="a picture has at least one pixel"),
    ),
)
