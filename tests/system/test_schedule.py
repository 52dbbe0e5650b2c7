"""`flywheel up` as a user has it, outside the repository: server, worker, deployments, pages, events, and its end."""

import json
import os
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.config.sections import LakeConfig
from storage.lake import Lake
from storage.upgrade import upgrade
from tasks.shared.reviews import Draft, submit
from tests.prefect_home import prefect_home
from tests.shadowed import shadow
from tests.system.parts.commands import MARK, Command
from tests.system.test_upgrade import CONFIG, GOLDEN

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[2]
TRIGGERS = "[triggers]\nsteps = 0\ndecisions = 1\n[desk]\nport = 0\n"


@dataclass
class Up:
    """What `flywheel up` started."""

    folder: Path
    command: Command
    environ: dict[str, str]
    api: str

    def flywheel(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "apps.cli", *words],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    def json(self, *words: str) -> Any:
        done = self.flywheel(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def rows(self, what: str, **body: Any) -> Any:
        return self.ask(f"{what}/filter", body).json()

    def ask(self, what: str, body: dict[str, Any]) -> httpx.Response:
        token = httpx.get(f"{self.api}/csrf-token", params={"client": "test"}, timeout=120).json()["token"]
        headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "test"}
        return httpx.post(f"{self.api}/{what}", json=body, headers=headers, timeout=120)

    def runs(self, name: str) -> list[dict[str, Any]]:
        return [
            one for one in self.rows("flow_runs", sort="START_TIME_ASC") if one["name"].split()[0].rstrip(":") == name
        ]

    def until(self, reached: Callable[[], Any], seconds: float = 240) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := reached()):
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.5)
        return found

    def ended(self, name: str) -> dict[str, Any]:
        """The newest run of a deployment, once it is over."""
        over = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
        return self.until(lambda: [one for one in self.runs(name) if one["state_type"] in over])[-1]

    def log(self, run: dict[str, Any]) -> list[str]:
        about = {"flow_run_id": {"any_": [run["id"]]}}
        return [one["message"] for one in self.rows("logs", logs=about)]

    def said(self) -> str:
        logs = sorted((self.folder / "home" / "up").glob("*.log"))
        return "\n".join(f"{one.name}: {one.read_text()[-2000:]}" for one in [self.command.log, *logs])


def scheduled(up: Up, name: str) -> list[dict[str, Any]]:
    """The runs of a deployment that the server has planned."""
    (deployment,) = up.rows("deployments", deployments={"name": {"any_": [name]}})
    return up.rows("flow_runs", flow_runs={"deployment_id": {"any_": [deployment["id"]]}})


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("project")
    with tarfile.open(GOLDEN) as packed:
        packed.extractall(folder, filter="data")
    shadow(folder)
    (folder / "flywheel.toml").write_text(CONFIG + f'{TRIGGERS}[lake]\nuri = "lake"\nmin_free_mb = 10\n')
    upgrade(LakeConfig(uri=str(folder / "lake")), lambda step: None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mark = uuid.uuid4().hex
    prefect_home(folder / "home" / "prefect")
    environ = {**os.environ, "FLYWHEEL_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), MARK: mark}
    environ.pop("PREFECT_API_URL", None)
    environ["PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS"] = "2"  # a minute otherwise
    words = [sys.executable, "-P", "-m", "apps.cli", "up", "--port", str(port)]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environ, stdout=log, stderr=log, start_new_session=True)
    started = Up(folder, Command(process, mark, folder / "up.log"), environ, f"http://127.0.0.1:{port}/api")
    try:
        started.until(lambda: "Ctrl-C ends" in started.command.log.read_text() or process.poll() is not None)
        assert process.poll() is None, started.said()
        yield started
    finally:
        for one in started.command.tree():
            one.kill()


@pytest.mark.timeout(600)
def test_all_of_it_is_there_and_each_part_is_said_in_a_line(up: Up) -> None:
    lines = dict(line.split(maxsplit=1) for line in up.command.log.read_text().splitlines() if line[0] != " ")
    assert list(lines) == ["prefect", "deployed", "worker", "pages", "report", "logs"]
    assert lines["prefect"].startswith(up.api.removesuffix("/api")) and lines["worker"].endswith(str(up.folder))
    with urllib.request.urlopen(lines["pages"].split()[0], timeout=60) as answer:
        assert answer.status == 200
    assert Path(lines["report"]).is_file()
    again = up.flywheel("up")
    assert again.returncode == 2 and "runs already" in again.stderr and again.stderr.count("\n") == 1


@pytest.mark.timeout(600)
def test_no_page_of_another_site_may_use_the_server(up: Up) -> None:
    foreign = {"Origin": "http://elsewhere.example"}
    refused = httpx.post(f"{up.api}/flow_runs/filter", json={}, headers=foreign, timeout=120)
    assert refused.status_code == 403
    read = httpx.get(f"{up.api}/csrf-token", params={"client": "x"}, headers=foreign, timeout=120)
    assert "access-control-allow-origin" not in read.headers
    for what in ("csrf-token?client=x", "health"):
        rebound = httpx.get(f"{up.api}/{what}", headers={"Host": "elsewhere.example"}, timeout=120)
        assert rebound.status_code == 400 and "token" not in rebound.text


@pytest.mark.nightly  # tests/flows/test_deploying.py has schedules, too
@pytest.mark.timeout(600)
def test_schedules_are_listed_set_and_switched_and_stay_when_it_is_deployed_again(up: Up) -> None:
    listed = {one["name"]: one for one in up.json("schedule", "list")}
    assert list(listed)[:3] == ["flywheel", "collect", "retrain"]
    assert not any(schedule["on"] for one in listed.values() for schedule in one["schedules"])
    assert up.json("schedule", "set", "report", "--every", "6h") == {"name": "report", "when": "every 6h", "on": True}
    planned = up.until(lambda: scheduled(up, "report"), 120)
    assert {one["state_type"] for one in planned} == {"SCHEDULED"} and len(planned) > 1
    assert up.json("schedule", "off", "report")["on"] is False
    assert up.json("schedule", "deploy")["deployed"] == list(listed)
    listed = {one["name"]: one for one in up.json("schedule", "list")}
    assert listed["report"]["schedules"] == [{"when": "every 6h", "on": False}]
    for words, told in (
        (["on", "wheel"], "There are: flywheel"),
        (["run", "flywheel", "-p", "iterations=0"], "minimum"),
    ):
        refused = up.flywheel("schedule", *words)
        assert refused.returncode == 2 and told in refused.stderr and refused.stderr.count("\n") == 1


@pytest.mark.timeout(600)
def test_automations_are_there_once_however_often_they_are_made(up: Up) -> None:
    before = {one["name"]: one["updated"] for one in up.rows("automations")}
    assert sorted(up.json("schedule", "automations")["automations"]) == sorted(before) and len(before) == 6
    assert {one["name"]: one["updated"] for one in up.rows("automations")} == before


@pytest.mark.nightly  # tests/flows/test_people_flow.py follows decisions to the next policy
@pytest.mark.timeout(600)
def test_a_person_s_decision_begins_a_retraining_by_an_event_and_its_page_tells_what_it_did(up: Up) -> None:
    lake = Lake.open(LakeConfig(uri=str(up.folder / "lake")), create=False)
    failed = lake.read("trajectories", ["trajectory_id"], {"success": False, "iteration": 1})[
        "trajectory_id"
    ].to_pylist()
    submit(lake, Draft(min(failed), 0, "ada", "reject"))
    before = lake.count("policies")
    up.json("schedule", "run", "watch")
    retrained = up.ended("retrain")
    assert retrained["state_type"] == "COMPLETED", (retrained["state"], up.said())
    assert lake.count("policies") == before + 1
    decided = ("promoted", "held", "rejected")  # logs arrive a moment after the run's end
    up.until(lambda: [line for line in up.log(retrained) if any(word in line for word in decided)], 60)
    up.json("schedule", "run", "watch")
    up.until(lambda: len(up.runs("watch")) == 2 and up.ended("watch"))
    assert len(up.runs("retrain")) == 1  # the same decision asks once


@pytest.mark.timeout(600)
def test_when_it_is_killed_outright_nothing_of_it_is_left(up: Up) -> None:
    up.json("schedule", "run", "flywheel")
    up.until(lambda: any(one["state_type"] == "RUNNING" for one in up.runs("flywheel")))
    up.command.process.kill()
    up.command.process.wait()
    assert not up.command.left_after(45), up.command.left()
