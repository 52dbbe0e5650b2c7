"""What a person overrides in a live session, in a real Chromium, is in the next policy and on its page."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from apps.commands.lineage import lineage_of
from flows.policies import retrain
from schemas.config import Config
from storage.lake import Lake
from tests.flows.conftest import Turned
from tests.system.parts.desk import Desk, begin_live, chromium, override_all, person

SEED = 5


@pytest.fixture
def ada(turned: Turned, tmp_path: Path) -> Iterator[tuple[Desk, Config]]:
    """A person at a desk over a lake of one iteration, and the lake's config."""
    config = turned(1)
    file = tmp_path / "config.toml"
    file.write_text(
        f'name = "small"\n[lake]\nuri = "{config.lake.uri}"\nmin_free_mb = 10\n[environments.fake]\nsandboxes = 4\n'
        f"[suite]\ntasks = {json.dumps(list(config.suite.tasks))}\nheld_out = []\n[policy]\nmax_new_tokens = 8\n"
    )
    words = [sys.executable, "-m", "apps.cli", "desk", "--port", "0", "--config", str(file)]
    with chromium() as start, subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1].rstrip("/")
        yield person("Ada", Lake.open(config.lake), address, start()), config
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 143


@pytest.mark.nightly  # test_people_flow.py follows every kind of decision to the next policy, and always runs
def test_an_override_in_a_live_session_is_in_the_next_policys_lineage(ada: tuple[Desk, Config]) -> None:
    desk, config = ada
    begin_live(desk, "fake/two-steps", SEED)
    override_all(desk, SEED)
    (live,) = desk.lake.read("trajectories", ["trajectory_id"], {"policy": "person"})["trajectory_id"].to_pylist()
    assert {row["trajectory_id"] for row in desk.lake.read("pairs").to_pylist()} >= {live}

    version = retrain(config)

    learned = lineage_of(Lake.open(config.lake), version)
    assert {one.review_id for one in desk.reviews()} == set(learned.reviews)
    assert live in learned.trajectories
    desk.open(f"/policies/{version}")
    assert "2 override by Ada" in desk.browser.find_element(By.TAG_NAME, "main").text
    desk.open(f"/trajectory/{live}")
    desk.press("l")
    desk.until(lambda: desk.count("#policies a"))
    desk.browser.find_element(By.LINK_TEXT, version).click()
    assert desk.browser.current_url == f"{desk.address}/policies/{version}"
