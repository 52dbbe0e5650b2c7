"""A lake that an earlier version made is brought up to date in place, whenever the upgrade is killed."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from schemas.config.sections import LakeConfig
from schemas.table import SCHEMA_VERSION
from schemas.tables import TABLES
from storage.lake import Lake
from storage.upgrade import upgrade
from tests.command import Call
from tests.tiers import NIGHTLY

GOLDEN = Path(__file__).parents[1] / "golden" / "lake-1.tar.xz"
"""Two iterations on the fake environment with a judged task, a retrained and a merged policy; schema version 1."""
CONFIG = """
iterations = 2
[environments.fake]
sandboxes = 4
[suite]
tasks = ["click-one", "click-target", "note"]
held_out = ["two-steps"]
[judge]
kind = "fake"
[collect]
trajectories_per_task = 6
policy_share = 0.25
relay_share = 0.25
[policy]
max_new_tokens = 12
hidden = 96
layers = 1
vision_hidden = 64
vision_layers = 1
[train]
steps_first = 4
steps = 4
batch = 4
processes = 1
warmup = 1
[evaluate]
seeds = 2
held_out_seeds = 1
explorer_seeds = 2
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    with tarfile.open(GOLDEN) as packed:
        packed.extractall(tmp_path, filter="data")
    (tmp_path / "config.toml").write_text(CONFIG + f'[lake]\nuri = "{tmp_path}/lake"\nmin_free_mb = 10\n')
    return tmp_path / "lake"


def command(lake: Path, *asked: str) -> list[str]:
    return [sys.executable, "-m", "apps.cli", *asked, "--config", str(lake.parent / "config.toml")]


def started(lake: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(lake, *asked), capture_output=True, text=True, timeout=240, check=False)


def rows_of(lake: Path) -> dict[str, int]:
    opened = Lake.open(LakeConfig(uri=str(lake)), create=False, oldest=1)
    return {name: opened.count(name) for name in TABLES}


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_older_lake_is_refused_with_the_command_that_upgrades_it_and_is_then_gone_on_with(
    lake: Path, flywheel: Call
) -> None:
    asked = ("--config", lake.parent / "config.toml")
    code, _, errors = flywheel("status", *asked)
    assert code == 1
    assert "flywheel upgrade" in errors
    before = rows_of(lake)
    code, output, errors = flywheel("upgrade", "--json", *asked)
    assert code == 0 and json.loads(output)["steps"][-1] == f"schema version {SCHEMA_VERSION}", errors
    assert flywheel("upgrade", *asked)[1] == "the lake is up to date\n"
    assert rows_of(lake) == before
    status = json.loads(flywheel("status", "--json", *asked)[1])
    assert [one["iteration"] for one in status["iterations"]] == [0, 1]
    assert status["champion"] == "merged-0000"
    if NIGHTLY:
        like = answer(started(lake, "retrain", "--like", "policy-0001", "--json"))
        again = Lake.open(LakeConfig(uri=str(lake)), create=False).read("policies").to_pylist()
        made = {row["policy_version"]: row for row in again}
        assert made[like["policy"]]["data_versions"] == made["policy-0001"]["data_versions"]
        assert started(lake, "run", "--iterations", "1").returncode == 0
        assert len(json.loads(flywheel("status", "--json", *asked)[1])["iterations"]) == 3


class Killed(BaseException):
    """Ends an upgrade where a kill would."""


def test_an_upgrade_that_is_killed_after_any_step_goes_on_and_loses_nothing(lake: Path) -> None:
    before, config = rows_of(lake), LakeConfig(uri=str(lake))
    left = None
    while left is None:
        try:
            left = upgrade(config, kill)
        except Killed:
            assert rows_of(lake) == before
    assert left == []
    assert rows_of(lake) == before
    assert Lake.open(config, create=False).schema_version == SCHEMA_VERSION


@pytest.mark.slow
def test_an_upgrade_that_is_killed_outright_goes_on(lake: Path, flywheel: Call) -> None:
    before = rows_of(lake)
    running = subprocess.Popen(command(lake, "upgrade"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert running.stdout is not None
    running.stdout.readline()
    running.kill()
    running.wait()
    assert rows_of(lake) == before
    assert upgrade(LakeConfig(uri=str(lake)), lambda step: None)[-1:] in ([f"schema version {SCHEMA_VERSION}"], [])
    status = flywheel("status", "--json", "--config", lake.parent / "config.toml")
    assert json.loads(status[1])["champion"] == "merged-0000"


def kill(step: str) -> None:
    raise Killed(step)


def test_a_lake_that_is_newer_than_the_code_is_refused(lake: Path, flywheel: Call) -> None:
    mark = json.loads((lake / "flywheel.json").read_text())
    (lake / "flywheel.json").write_text(json.dumps({**mark, "schema_version": 99}))
    for verb in ("status", "upgrade"):
        code, _, errors = flywheel(verb, "--config", lake.parent / "config.toml")
        assert code == 1
        assert "version 99" in errors
