"""The site of a lake on S3 whose store goes away: pages say so within seconds, and recover once it is back."""

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from apps.desk.security import LOOPBACK
from apps.desk.serve import site_of
from schemas.config import config_of
from storage.lake import Lake
from tests.system.parts.proxy import Mode, Proxy, proxy_of
from tests.system.parts.s3 import BUCKET
from tests.tiers import NIGHTLY

pytestmark = [pytest.mark.usefixtures("credentials"), pytest.mark.slow]
SOON_S, BACK_S = 10.0, 60.0
"""The second is about what a client waits for an answer to a request that the store has taken and forgotten."""


@pytest.fixture
def proxy(endpoint: str) -> Iterator[Proxy]:
    with proxy_of(endpoint) as made:
        yield made


@pytest.fixture
def site(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    config = config_of({
        "lake": {"uri": f"s3://{BUCKET}/{uuid4().hex}", "endpoint": proxy.address},
        "environments": {"fake": {}}, "suite": {"tasks": ["click-target"], "held_out": []},
    })  # fmt: skip
    assert config.lake.patience_s == 600
    Lake.open(config.lake)
    with TestClient(site_of(config, None, LOOPBACK), "http://127.0.0.1:8750") as client:
        yield client


@pytest.mark.parametrize("mode", ["away", "busy", "silent"] if NIGHTLY else ["away"])
def test_pages_say_within_seconds_that_the_store_is_away_and_answer_by_themselves_once_it_is_back(
    site: TestClient, proxy: Proxy, mode: Mode
) -> None:
    assert site.get("/").status_code == site.get("/api/now").status_code == 200
    proxy.be(mode)
    for path in ("/lineage", "/api/now"):
        began, answer = time.monotonic(), site.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert time.monotonic() - began < SOON_S
        assert "The S3 endpoint of s3://" in answer.text and "Check `lake.endpoint`" in answer.text.replace(
            "&#96;", "`"
        )
    assert answer.json()["error"].endswith("this site answers again by itself once the store does.")
    assert 'http-equiv="refresh"' in site.get("/").text
    assert site.get("/static/desk.js").status_code == 200
    proxy.be("whole")
    until = time.monotonic() + BACK_S
    while site.get("/lineage").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert site.get("/api/now").status_code == 200
