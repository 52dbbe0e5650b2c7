"""The dashboard in a real headless Chromium, without a network, while a run turns the lake and after."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tasks.running.run_status import RunStatus, file_of

WAIT_S = 240.0
CONFIG = """
iterations = 1
[environments.fake]
sandboxes = 4
[suite]
tasks = ["click-target", "two-steps"]
held_out = []
hard = []
practice = []
[collect]
trajectories_per_task = 30
[evaluate]
seeds = 2
explorer_seeds = 1
untrained_seeds = 1
[policy]
hidden = 64
layers = 1
vision_hidden = 64
vision_layers = 1
[train]
steps = 8
steps_first = 8
processes = 1
"""


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError("waited in vain")


@pytest.mark.nightly
def test_the_dashboard_follows_a_run_and_draws_what_it_came_to(tmp_path: Path, browser: WebDriver) -> None:
    config = tmp_path / "small.toml"
    config.write_text(f'{CONFIG}\n[lake]\nuri = "{tmp_path / "lake"}"\nmin_free_mb = 1\n')
    environ = {**os.environ, "FLYWHEEL_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "apps.cli"]
    log = (tmp_path / "run.log").open("w")
    run = subprocess.Popen([*command, "run", "--config", str(config)], env=environ, stdout=log, stderr=log)
    try:
        until(lambda: (tmp_path / "lake" / "tables" / "policies").exists() or run.poll() is not None)
        served = [*command, "serve", "--port", "0", "--config", str(config)]
        with subprocess.Popen(served, env=environ, stdout=subprocess.PIPE, text=True) as site:
            assert site.stdout is not None
            address = site.stdout.readline().split()[1].rstrip("/")
            browser.get(f"{address}/running")
            seen: set[str] = set()

            def looked() -> bool:
                seen.add(browser.find_element(By.ID, "runs").text)
                return run.poll() is not None

            until(looked)
            assert run.wait(5) == 0, (tmp_path / "run.log").read_text()[-2000:]
            assert any("iteration 0" in text for text in seen), seen
            until(lambda: browser.find_element(By.ID, "idle").is_displayed())
            for page, charts in (("/", 6), ("/curriculum", 1), ("/lineage", 1)):
                browser.get(address + page)
                until(lambda charts=charts: len(browser.find_elements(By.CSS_SELECTOR, ".chart svg")) == charts)
            browser.find_element(By.LINK_TEXT, "policy-0000").click()
            assert "Made from" in browser.find_element(By.TAG_NAME, "main").text
            until(lambda: browser.find_elements(By.CSS_SELECTOR, "#chart-training svg"))
            training = RunStatus(
                heard=time.time(), run_id="live", curve=((1, {"kl": 0.1}), (2, {"kl": 0.2, "loss": 1.0}))
            )
            lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
            lake.blobs.store.put(file_of("live"), training.model_dump_json().encode())
            browser.get(f"{address}/running")
            until(lambda: {"KL", "loss"} <= set(browser.find_element(By.ID, "curves").text.split()))
            assert asked_of_others(browser, address) == set()
            assert [row for row in browser.get_log("browser") if row["level"] == "SEVERE"] == []
            site.send_signal(signal.SIGTERM)
            assert site.wait(15) == 143
    finally:
        run.kill()
        log.close()


def asked_of_others(browser: WebDriver, address: str) -> set[str]:
    """The addresses that pages asked, and that are not the site's own."""
    sent = [json.loads(row["message"])["message"] for row in browser.get_log("performance")]
    urls = {row["params"]["request"]["url"] for row in sent if row["method"] == "Network.requestWillBeSent"}
    return {url for url in urls if not url.startswith((address, "data:", "blob:", "chrome:"))}
