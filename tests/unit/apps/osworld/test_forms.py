"""Forms as clients send them."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.osworld.app import fields_of


@given(st.binary(max_size=300), st.text(min_size=1, max_size=40))
def test_a_file_arrives_byte_by_byte_and_its_name_as_text(content: bytes, path: str) -> None:
    path = path.encode(errors="ignore").decode()
    sent = httpx.Request("POST", "http://x", data={"file_path": path}, files={"file_data": ("a", content)})
    read = fields_of(sent.headers["content-type"], sent.read())
    assert read == {"file_path": path.encode(), "file_data": content}


@given(st.text(max_size=40))
def test_a_plain_form_arrives(path: str) -> None:
    path = path.encode(errors="ignore").decode()
    sent = httpx.Request("POST", "http://x", data={"file_path": path})
    assert fields_of(sent.headers["content-type"], sent.read()) == {"file_path": path.encode()}


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/form-data", "text/plain; boundary=x"])
def test_what_is_no_form_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="not a form"):
        fields_of(kind, b"--x\r\n\r\n--x--")
