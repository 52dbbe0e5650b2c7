"""Errors of a store as users read them, in lines of text or of JSON."""

import json

import pytest
from s3fs.errors import translate_boto_error

from schemas.failure import StoreUnreachable
from storage.explained import explained
from storage.patience import StoreRetry


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InternalError", "We encountered an internal error. Please try again."),
        ("SlowDown", "Please reduce your request rate."),
        ("ServiceUnavailable", "Service is unable to handle request."),
        ("ConditionalRequestConflict", "The conditional request cannot succeed."),
    ],
)
def test_an_error_of_a_busy_s3_server_is_waited_for(code: str, message: str) -> None:
    """The texts of AWS's error codes."""
    from botocore.exceptions import ClientError

    error = translate_boto_error(ClientError({"Error": {"Code": code, "Message": message}}, "GetObject"))
    with pytest.raises(StoreUnreachable, match="answers with an error"), explained("s3://b/p"):
        raise error


@pytest.mark.parametrize("switch", ["", "json"])
def test_an_outage_is_reported_in_the_form_of_all_messages(
    switch: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLYWHEEL_LOG", switch)
    retry, left = StoreRetry("s3://b/p"), [ConnectionError("Connection reset")]
    retry.allow(20)

    def read() -> str:
        if left:
            raise left.pop()
        return "read"

    assert retry.over(read) == "read"
    away, back = capsys.readouterr().err.splitlines()
    if switch:
        away, back = (json.loads(line)["message"] for line in (away, back))
    assert "cannot be reached" in away and "answers again after" in back
