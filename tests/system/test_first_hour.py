"""A user's first hour, from a config to a lake that is restored from a copy, by the commands that the README names."""

import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from schemas.config.sections import LakeConfig
from schemas.observation import elements_of
from storage.lake import Lake
from tests.system.parts.commands import MARK, Command
from tests.system.parts.s3 import BUCKET
from tests.system.test_schedule import ROOT, Up
from tests.system.test_upgrade import CONFIG

MORE = "[triggers]\nsteps = 0\ndecisions = 1\n[desk]\nport = 0\n[promote]\nunparsable = 1\n"


@pytest.fixture
def hour(tmp_path: Path) -> Iterator[Up]:
    """A user in an empty folder; `flywheel up` is started later, and whatever it leaves is ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mark = uuid.uuid4().hex
    environ = {**os.environ, "FLYWHEEL_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), MARK: mark}
    environ.pop("PREFECT_API_URL", None)
    process = subprocess.Popen([sys.executable, "-c", ""], cwd=tmp_path, env=environ)
    user = Up(tmp_path, Command(process, mark, tmp_path / "up.log"), environ, f"http://127.0.0.1:{port}/api")
    yield user
    for one in user.command.tree():
        one.kill()


@pytest.mark.nightly  # its commands run one by one in test_schedule.py, test_upgrade.py and tests/flows
@pytest.mark.timeout(900)
def test_a_user_s_first_hour(hour: Up, endpoint: str, credentials: None) -> None:
    done = hour.flywheel("init", "--full", "--to", "described")
    assert done.returncode == 0 and "[budget]" in (hour.folder / "described" / "flywheel.toml").read_text()
    (hour.folder / "flywheel.toml").write_text(f'{CONFIG}{MORE}[lake]\nuri = "lake"\nmin_free_mb = 10\n')

    done = hour.flywheel("run", "--iterations", "1")
    assert done.returncode == 0, done.stderr
    report = Path(done.stdout.split("report ")[-1].strip())
    assert "Success per iteration" in report.read_text()
    lake = Lake.open(LakeConfig(uri=str(hour.folder / "lake")), create=False)

    with started(hour, "up", "--port", hour.api.rsplit(":", 1)[1].partition("/")[0]):
        hour.until(lambda: "Ctrl-C ends" in hour.command.log.read_text() or hour.command.process.poll() is not None)
        lines = dict(line.split(maxsplit=1) for line in hour.command.log.read_text().splitlines() if line[:1] != " ")
        pages = lines["pages"].split()[0].rstrip("/")
        for path in ("", "/queue", "/running", "/lineage"):
            assert httpx.get(pages + path, timeout=60).status_code == 200
        corrected = correct(pages, lake)
        hour.json("schedule", "run", "watch")
        retrained = hour.ended("retrain")
        assert retrained["state_type"] == "COMPLETED", hour.said()
    made = hour.json("lineage", "retrained-0000")
    assert corrected in made["reviews"]["ids"]
    status = hour.json("status")
    assert status["decisions"][-1]["policy"] == "retrained-0000" and status["champion"] != "policy-initial"

    back = hour.flywheel("rollback", "policy-initial", "--reason", "to see that it works")
    assert back.returncode == 0, back.stderr

    restored = hour.folder / "restored"
    shutil.copytree(hour.folder / "lake", restored)
    shutil.rmtree(hour.folder / "lake")
    assert hour.json("status", f"lake.uri={restored}")["champion"] == "policy-initial"
    again = hour.flywheel("evaluate", "--policy", "policy-0000", f"lake.uri={restored}")
    assert again.returncode == 0, again.stderr
    assert lake.lake_id == Lake.open(LakeConfig(uri=str(restored)), create=False).lake_id

    hour.environ |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    remote = [f"lake.uri=s3://{BUCKET}/first-hour", f"lake.endpoint={endpoint}"]
    done = hour.flywheel("run", "--iterations", "1", *remote)
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(hour.json("status", *remote)["iterations"]) == 1


@contextmanager
def started(user: Up, *words: str) -> Iterator[None]:
    """A command that runs until it is left, which ends it as a service manager does."""
    with user.command.log.open("wb") as log:
        command = [sys.executable, "-m", "apps.cli", *words]
        process = subprocess.Popen(command, cwd=user.folder, env=user.environ, stdout=log, stderr=log)
    user.command = Command(process, user.command.mark, user.command.log)
    yield
    process.terminate()
    assert process.wait(60) == 143


def correct(pages: str, lake: Lake) -> str:
    """Corrects the first step of a failure in the queue to what its instruction asks, as the desk's page does; the
    review's id.

    A correction of a success is learned from only once a sandbox verified it, and none that a sandbox refuted
    (docs/annotate.md).
    """
    queue = httpx.get(f"{pages}/api/queue", timeout=60).json()
    place = next(place for place in queue if not place["success"] and "click" in place["task"])
    item = httpx.get(f"{pages}/api/trajectories/{place['trajectory_id']}", timeout=60).json()
    (step,) = lake.read("steps", where={"trajectory_id": item["trajectory_id"], "step": 0}).to_pylist()
    box = next(one.box for one in elements_of(step["elements"]) if f'"{one.name}"' in item["instruction"])
    decision = {
        "trajectory_id": item["trajectory_id"],
        "revision": item["revision"],
        "person": "ada",
        "decision": "correct",
        "step": 0,
        "action": {"type": "click", "x": (box[0] + box[2]) / 2, "y": (box[1] + box[3]) / 2},
        "seconds": 3.0,
    }
    answer = httpx.post(f"{pages}/api/reviews", json=decision, timeout=60)
    assert answer.status_code < 300, answer.text
    return answer.json()["review_id"]
