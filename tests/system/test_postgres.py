"""Prefect's state in PostgreSQL: what `flywheel up` starts is there, and a run of a deployment comes to its end."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tests.system.parts.commands import MARK, Command
from tests.system.test_schedule import ROOT, Up
from tests.system.test_upgrade import CONFIG
from tests.tiers import lacks

PROGRAMS = next(
    iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1]), Path(shutil.which("initdb") or "/").parent
)
OWNER = "postgres" if os.geteuid() == 0 else None
"""PostgreSQL does not run as root."""
DEPLOYMENT, EVENT = "flywheel", "flywheel.iteration.completed"
"""What runs, and what is heard of it."""


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def postgres() -> Iterator[str]:
    """A PostgreSQL server of its own; where Prefect finds it."""
    if not (PROGRAMS / "initdb").exists():
        pytest.skip(lacks("no PostgreSQL", "apt-get install postgresql"))
    folder = Path(tempfile.mkdtemp(prefix="flywheel-postgres-"))
    if OWNER:
        shutil.chown(folder, OWNER)
    data, at = folder / "data", port()
    made = [PROGRAMS / "initdb", "-D", data, "-U", "prefect", "-A", "trust"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, user=OWNER, cwd=folder)
    settings = ["-c", f"port={at}", "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
    with (folder / "log").open("wb") as log:
        words = [PROGRAMS / "postgres", "-D", data, *settings]
        server = subprocess.Popen(words, stdout=log, stderr=log, user=OWNER, cwd=folder)
    try:
        yield f"postgresql+asyncpg://prefect@127.0.0.1:{at}/postgres"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_server_over_postgresql_has_the_deployments_their_runs_and_the_events(postgres: str, tmp_path: Path) -> None:
    (tmp_path / "flywheel.toml").write_text(f'{CONFIG}[desk]\nport = 0\n[lake]\nuri = "lake"\nmin_free_mb = 10\n')
    Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    mark, at = uuid.uuid4().hex, port()
    environ = {
        **os.environ, "FLYWHEEL_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), MARK: mark,
        "PREFECT_API_DATABASE_CONNECTION_URL": postgres,
    }  # fmt: skip
    environ.pop("PREFECT_API_URL", None)
    words = [sys.executable, "-m", "apps.cli", "up", "--port", str(at)]
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=tmp_path, env=environ, stdout=log, stderr=log)
    up = Up(tmp_path, Command(process, mark, tmp_path / "up.log"), environ, f"http://127.0.0.1:{at}/api")
    try:
        up.until(lambda: "Ctrl-C ends" in up.command.log.read_text() or process.poll() is not None)
        assert process.poll() is None, up.said()
        up.json("schedule", "run", DEPLOYMENT)
        run = up.ended(DEPLOYMENT)
        assert run["state_type"] == "COMPLETED", up.said()
        assert [one["iteration"] for one in up.json("status")["iterations"]] == [0]
        about = {"filter": {"event": {"prefix": [EVENT]}}, "limit": 50}

        def heard() -> bool:  # events arrive a moment after the run's end
            seen = up.ask("events/filter", about).json()["events"]
            return EVENT in {one["event"] for one in seen}

        up.until(heard, 60)
    finally:
        process.terminate()
        assert process.wait(60) == 143
    tables = subprocess.run(
        [PROGRAMS / "psql", postgres.replace("+asyncpg", ""), "-tAc", "select name from deployment order by name"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {"flywheel", "retrain", "maintain"} <= set(tables.stdout.split())
