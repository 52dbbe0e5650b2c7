"""Kill -9 of any process of a run, at random moments, then the same command again: the run goes on, nothing twice."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from schemas.config import load_config
from schemas.stage import STAGES
from schemas.tables import TABLES
from storage.lake import Lake
from tests.tier import FULL

KILLS = 20 if FULL else 3
PATIENCE_S = 300
"""A run whose Prefect server is killed while it starts waits for it, 120 s at the most, and ends with an error."""
CONFIG = """
name = "small"
[lake]
uri = "{lake}"
min_free_mb = 10
[environments.fake]
sandboxes = 4
[suite]
tasks = ["click-target", "two-steps"]
[collect]
trajectories_per_task = 20
chunk = 4
relay_share = 0.2
[policy]
max_new_tokens = 8
[train]
steps_first = 30
steps = 30
batch = 4
warmup = 1
[evaluate]
seeds = 4
explorer_seeds = 4
"""


def start(config: Path, iterations: int, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "apps.cli", "run", "--config", str(config), "--iterations", str(iterations)]
    log = config.with_suffix(".log").open("ab")
    return subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)


def finished(lake: Path) -> list[int]:
    if not (lake / "flywheel.json").exists():
        return []
    config = load_config(lake.parent / "small.toml", [], {})
    rows = Lake.open(config.lake).read("stages", ["iteration"], {"stage": STAGES[-1]})["iteration"].to_pylist()
    return sorted(rows)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_run_goes_on_after_kills_at_random_moments_and_every_table_holds_every_key_once(tmp_path: Path):
    lake, config = tmp_path / "lake", tmp_path / "small.toml"
    config.write_text(CONFIG.format(lake=lake))
    environ = {**os.environ, "FLYWHEEL_HOME": str(tmp_path / "home"), "PREFECT_HOME": str(tmp_path / "prefect")}
    dice = random.Random(7)
    killed: list[str] = []
    while len(killed) < KILLS:
        run = start(config, 1, environ)
        time.sleep(dice.uniform(6.0, 25.0))
        tree = (
            [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)] if run.poll() is None else []
        )
        if tree:
            victim = dice.choice([tree[0], dice.choice(tree)])
            killed.append(" ".join(victim.cmdline()[:4]) if victim.is_running() else "gone")
            victim.kill()
        try:
            run.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            pytest.fail(f"the run hung after killing {killed[-1]}")
        assert not left(run.pid), f"after killing {killed[-1]}"
    done = len(finished(lake))
    last = start(config, 1, environ)
    assert last.wait(timeout=300) == 0, config.with_suffix(".log").read_text()[-3000:]
    assert finished(lake) == list(range(done + 1))
    check(lake, done + 1)


@pytest.mark.slow
def test_a_run_that_is_told_to_end_while_it_trains_ends_soon_and_leaves_no_process(tmp_path: Path) -> None:
    config = tmp_path / "small.toml"
    config.write_text(CONFIG.format(lake=tmp_path / "lake").replace("steps_first = 30", "steps_first = 100000"))
    environ = {**os.environ, "FLYWHEEL_HOME": str(tmp_path / "home"), "PREFECT_HOME": str(tmp_path / "prefect")}
    run = start(config, 1, environ)
    while not any("learning.trainer" in said(one, run.pid) for one in psutil.Process(run.pid).children()):
        assert run.poll() is None
        time.sleep(0.1)
    time.sleep(2.5)  # the trainer starts its second process about now
    run.terminate()
    assert run.wait(timeout=60) == 128 + signal.SIGTERM
    assert not left(run.pid)


def left(group: int) -> list[str]:
    """What of a run's process group is still there half a minute after its end, however it ended."""
    for _ in range(300):
        if not (found := [words for one in psutil.process_iter() if (words := said(one, group))]):
            break
        time.sleep(0.1)
    return found


def said(process: psutil.Process, group: int) -> str:
    """A living process's command; nothing for one of another group."""
    try:
        living = os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
        return " ".join(process.cmdline()) if living else ""
    except (psutil.Error, ProcessLookupError):
        return ""


def check(lake_folder: Path, iterations: int) -> None:
    lake = Lake.open(load_config(lake_folder.parent / "small.toml", [], {}).lake)
    for table in TABLES.values():
        rows = lake.read(table.name, list(table.key)).to_pylist()
        assert len({tuple(row.values()) for row in rows}) == len(rows), table.name
    trajectories = lake.read("trajectories").to_pylist()
    planned = lake.read("curriculum").to_pylist()
    kinds = ("explorer_trajectories", "policy_trajectories", "relay_trajectories")
    assert len(trajectories) == sum(row[kind] for row in planned for kind in kinds)
    steps = lake.read("steps", ["trajectory_id", "screenshot"]).to_pylist()
    assert len(steps) == sum(row["n_steps"] for row in trajectories)
    pictures = set(lake.read("screenshots", ["sha256"])["sha256"].to_pylist())
    assert {row["screenshot"] for row in steps} <= pictures
    champions = lake.read("policies", where={"status": "champion"}).to_pylist()
    assert len(champions) == 1
    for iteration in range(iterations):
        assert lake.count("evaluations", {"iteration": iteration, "suite": "suite"}) == 8
