"""Parse the forms of OSWorld's clients: fields, and files with their bytes, in either of the two encodings."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qs

MOST_BYTES = 256 << 20
"""Maximum bytes of a request."""


def fields_of(kind: str, body: bytes) -> Mapping[str, bytes]:
    """The fields of a form by name, those of files with the file's content.

    Args:
        kind: the request's `Content-Type`.
        body: of the request.

    Raises:
        ValueError: it is no form.
    """
    if kind.startswith("application/x-www-form-urlencoded"):
        read = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
        return {name: values[-1].encode() for name, values in read.items()}
    boundary = re.search(r'boundary="?([^";]+)"?', kind)
    if not kind.startswith("multipart/form-data") or boundary is None:
        raise ValueError(f"this is no form: {kind[:60]!r}")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode())
    return dict(_part(part) for part in parts[1:] if not part.startswith(b"--"))


def _part(part: bytes) -> tuple[str, bytes]:
    head, separator, content = part.partition(b"\r\n\r\n")
    name = re.search(rb'[;\s]name="([^"]*)"', head)
    if not separator or name is None:
        raise ValueError("a part of the form has no name")
    return name[1].decode(errors="replace"), content
