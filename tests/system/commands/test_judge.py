"""`flywheel judge` as a command, with a served model as a process of its own."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from environments.catalog import catalog
from schemas.config import config_of
from tests.fixtures.lake import make_small_lake

TASKS = ["click-target", "two-steps", "enter-text"]
"""What the small lake holds."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process, and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.system.parts.judge_server", str(port), str(tmp_path / "asked")]
    process, url = subprocess.Popen(command), f"http://127.0.0.1:{port}/v1"
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            httpx.get(f"{url}/models").raise_for_status()
            break
        except httpx.HTTPError:
            time.sleep(0.1)
    yield process, url
    process.kill()
    process.wait()


@pytest.mark.nightly
def test_a_served_judge_is_asked_once_about_each_trajectory_and_says_how_often_it_is_right(
    tmp_path: Path, server: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, url = server
    lake = make_small_lake(tmp_path / "lake", trajectories=4)
    lake.append("tasks", catalog(config_of({"environments": {"fake": {}}, "suite": {"tasks": TASKS}})))
    rows = lake.read("trajectories", ["n_steps", "success"]).to_pylist()
    keys = ["judge.kind=endpoint", f"judge.options.url={url}", "judge.options.model=severe"]

    def judge(*words: str, key: str = "secret") -> tuple[int, dict[str, Any], str]:
        command = [sys.executable, "-m", "apps.cli", "judge", "--json", f"lake.uri={lake.uri}", *keys, *words]
        environ = {**os.environ, "FLYWHEEL_HOME": str(tmp_path / "home"), "FLYWHEEL_JUDGE_KEY": key}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}, done.stderr

    code, report, said = judge("--version", "severe", "--iterations", "0:1")
    assert code == 0, said
    assert (report["judged"], report["failed"], report["tokens_per_trajectory"]) == (len(rows), 0, 100)
    odd = [row for row in rows if row["n_steps"] % 2]
    found = report["against"]["verifier"]
    assert found["true_positives"] == sum(row["success"] for row in odd)
    assert found["false_positives"] == len(odd) - found["true_positives"] and found["n"] == len(rows)
    assert report["probation"] == f"compared {len(rows)} times, of 100"
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert len(asked) == len(rows) and {body["model"] for body in asked} == {"severe"}
    system, (text, *pictures) = asked[0]["messages"][0]["content"], asked[0]["messages"][1]["content"]
    assert "from step 0" in system and "\n\nStep 0:\n" in text["text"] and 1 <= len(pictures) <= 5

    assert judge("--version", "severe")[1]["skipped"] == len(rows)
    code, _, said = judge("--version", "mild")
    assert code == 2 and "the judge of the config is severe" in said
    code, _, said = judge("judge.screens=1", key="wrong")
    assert code != 0 and "FLYWHEEL_JUDGE_KEY" in said and "wrong" not in said and "Traceback" not in said
    process.kill()
    process.wait()
    code, _, said = judge("judge.screens=1")
    assert code != 0 and url in said and "Traceback" not in said
    assert lake.count("verdicts", {"gate": "judge"}) == len(rows)
