"""Credentials come from the environment and stay there."""

import pytest

from schemas.config import load_config
from storage.address import resolve

SECRET = "sup3rs3cretvalue"


def test_credentials_stand_in_no_config_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "FLYWHEEL_DESK_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    config = load_config("laptop", ["lake.uri=s3://bucket/lake", "policy.server.url=http://localhost:8000/v1"])
    assert SECRET not in config.canonical()
    address = resolve(config.lake)
    assert SECRET not in address.uri and SECRET not in str(address)
