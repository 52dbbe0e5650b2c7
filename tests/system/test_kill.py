"""Kill -9 of any process of a run, at random moments, then the same command again: the run goes on, nothing twice."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from schemas.config import load_config
from schemas.tables import TABLES
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tasks.shared.policies import policies
from tests.processes import words
from tests.system.parts.commands import CONFIG, SHORT, start
from tests.tiers import NIGHTLY

KILLS = 20 if NIGHTLY else 1
LATEST_S = 25.0 if NIGHTLY else 14.0
TURNED = CONFIG if NIGHTLY else SHORT
PATIENCE_S = 300
"""A run whose Prefect server is killed asks for it again and again, and ends with an error."""


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
    config.write_text(TURNED.format(lake=lake))
    dice = random.Random(7)
    killed: list[str] = []
    while len(killed) < KILLS:
        run = start(config)
        time.sleep(dice.uniform(6.0, LATEST_S))
        if tree := run.tree():
            victim = dice.choice([tree[0], dice.choice(tree)])
            killed.append(" ".join(words(victim)[:4]) or "gone")
            victim.kill()
        try:
            run.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            run.process.kill()
            pytest.fail(f"the run hung after killing {killed[-1]}")
        assert not run.left_after(30.0), f"after killing {killed[-1]}"
    done = len(finished(lake))
    last = start(config)
    assert last.process.wait(timeout=300) == 0, last.log.read_text()[-3000:]
    assert finished(lake) == list(range(done + 1))
    check(lake, done + 1)


@pytest.mark.nightly  # tests/system/test_interrupts.py interrupts runs at any moment
def test_a_run_that_is_told_to_end_while_it_trains_ends_soon_and_leaves_no_process(tmp_path: Path) -> None:
    config = tmp_path / "small.toml"
    text = SHORT.format(lake=tmp_path / "lake").replace("processes = 1", "processes = 2")
    config.write_text(text.replace("steps_first = 4", "steps_first = 100000"))
    run = start(config)
    while not any("learning.trainer" in command for command in run.left()):
        assert run.process.poll() is None
        time.sleep(0.1)
    time.sleep(2.5)  # the trainer starts its second process about now
    run.process.terminate()
    assert run.process.wait(timeout=15) == 128 + signal.SIGTERM
    assert not run.left()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_run_whose_processes_are_stopped_for_a_while_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    config = tmp_path / "small.toml"
    text = CONFIG.format(lake=tmp_path / "lake")
    config.write_text(text.replace("processes = 1", "processes = 1\nhung_s = 600"))  # who waits is not stopped
    run = start(config)
    for part in ("apps.cli", "learning.trainer"):  # the flow while it collects, then the trainer while the flow waits
        while not any(part in command for command in run.left()):
            assert run.process.poll() is None, run.log.read_text()
            time.sleep(0.1)
        time.sleep(2.0)
        stopped = [one for one in run.tree() if part in " ".join(words(one))]
        for one in stopped:
            one.suspend()
        time.sleep(60.0)
        for one in stopped:
            one.resume()
    assert run.process.wait(timeout=400) == 0, run.log.read_text()[-3000:]
    assert finished(tmp_path / "lake") == [0]
    check(tmp_path / "lake", 1)


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
    kept = lake.read("evaluation_trajectories", ["n_steps"])["n_steps"].to_pylist()
    assert lake.count("evaluation_steps") == sum(kept) and kept
    champions = [row for row in policies(lake).values() if row.status == "champion"]
    assert len(champions) == 1
    for iteration in range(iterations):
        assert lake.count("evaluations", {"iteration": iteration, "suite": "suite"}) == 8
