"""SIGTERM and Ctrl-C at random moments of a run: it ends soon and says so in one line, and the same command goes on."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.config import load_config
from schemas.table import SCHEMA_VERSION
from schemas.tables import TABLES
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tests.system.parts.commands import CONFIG, SHORT, Command, start
from tests.tiers import NIGHTLY

MOMENTS = int(os.environ.get("FLYWHEEL_MOMENTS", "100" if NIGHTLY else "2"))
LONGEST_S = 25.0 if NIGHTLY else 12.0
TURNED = CONFIG if NIGHTLY else SHORT
"""The last moment of a run, which takes about so long on two quiet cores."""
ENDED_S = 15.0
STAGE = re.compile(r"^ +(start|iteration \d+)  \w+ +[\d.]+ s  ")
LAST = "flywheel: ended by {}; every finished stage and trajectory is kept; the same command continues from there."


def interrupt(run: Command, number: signal.Signals) -> tuple[int, float]:
    """Its exit status, and the seconds it took; Ctrl-C goes to the whole foreground, as from a terminal."""
    begun = time.monotonic()
    if number == signal.SIGINT:
        os.killpg(run.process.pid, number)
    else:
        run.process.terminate()
    try:
        return run.process.wait(timeout=60), time.monotonic() - begun
    except subprocess.TimeoutExpired:
        return -1, 60.0


def interrupted(config: Path, moments: int, longest_s: float, dice: random.Random) -> list[float]:
    """Interrupts runs of a config until so many were hit; returns how long each took to end."""
    seconds: list[float] = []
    while len(seconds) < moments:
        run, number = start(config), (signal.SIGTERM, signal.SIGINT)[len(seconds) % 2]
        moment = dice.uniform(0.5, longest_s)
        time.sleep(moment)
        if run.process.poll() is not None:
            assert run.process.returncode == 0, run.log.read_text()
            continue
        status, took = interrupt(run, number)
        *before, last = run.log.read_text().splitlines() or [""]
        seconds.append(took)
        print(f"{len(seconds)}: {number.name} after {moment:.1f} s: status {status} in {took:.2f} s", flush=True)
        assert took < ENDED_S and status == 128 + number, (moment, status, took, run.log.read_text())
        assert last == LAST.format(number.name), (moment, last)
        assert all(STAGE.match(line) or line.startswith(("Starting ", "Resuming ")) for line in before), (
            moment,
            before,
        )
        assert not run.left(), (moment, run.left())
    return seconds


def finished(config: Path) -> int:
    lake = Lake.open(load_config(config, [], {}).lake)
    return lake.count("stages", {"stage": STAGES[-1]})


def keys(config: Path) -> dict[str, set[tuple[object, ...]]]:
    lake = Lake.open(load_config(config, [], {}).lake)
    found = {}
    for table in TABLES.values():
        rows = [tuple(row.values()) for row in lake.read(table.name, list(table.key)).to_pylist()]
        found[table.name] = set(rows)
        assert len(found[table.name]) == len(rows), table.name
    return found


def written(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "small.toml").write_text(text.format(lake=folder / "lake"))
    return folder / "small.toml"


@pytest.mark.nightly  # a run of real browsers is always interrupted once
@pytest.mark.timeout(7200)
def test_a_run_that_is_interrupted_at_random_moments_ends_soon_and_comes_to_what_an_undisturbed_one_does(
    tmp_path: Path,
) -> None:
    disturbed, calm = written(tmp_path / "disturbed", TURNED), written(tmp_path / "calm", TURNED)
    mark = {"format": "flywheel-lake", "schema_version": SCHEMA_VERSION, "lake_id": "0123456789ab", "created_at": ""}
    for config in (disturbed, calm):  # ids of trajectories are made from the lake's
        lake = config.parent / "lake"
        lake.mkdir()
        (lake / "flywheel.json").write_text(json.dumps(mark))
    took = interrupted(disturbed, MOMENTS, LONGEST_S, random.Random(11))
    print(f"{len(took)} moments: ended after {sum(took) / len(took):.2f} s, {max(took):.2f} s at the most")
    run = start(disturbed)
    assert run.process.wait(timeout=600) == 0, run.log.read_text()
    run = start(calm, finished(disturbed))
    assert run.process.wait(timeout=3000) == 0, run.log.read_text()
    assert keys(disturbed) == keys(calm)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("real_browser")
def test_with_real_browsers_too_and_their_profiles_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    text = CONFIG.replace("[environments.fake]\nsandboxes = 4", "[environments.miniwob]\npages = 8")
    text = text.replace('"click-target", "two-steps"', '"click-test", "click-button"')
    config = written(tmp_path / "browsers", text.replace("trajectories_per_task = 20", "trajectories_per_task = 100"))
    interrupted(config, max(1, MOMENTS // 5), 40.0 if NIGHTLY else 20.0, random.Random(12))
    assert not list((tmp_path / "tmp").glob("flywheel-browser-*"))
    shutil.rmtree(config.parent)


@pytest.mark.slow
def test_adding_that_is_ended_says_what_the_same_command_does(tmp_path: Path):
    slow = tmp_path / "python"
    slow.write_text('#!/bin/sh\ncase "$*" in *venv*) sleep 60 ;; *) echo 3 12 1 ;; esac\n')
    slow.chmod(0o755)
    words = ["environments", "add", "gymnasium", "--dir", str(tmp_path / "to"), "--python", str(slow)]
    command = [sys.executable, "-m", "apps.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as adding:
        assert adding.stdout is not None and adding.stdout.readline().startswith("a virtual environment")
        adding.terminate()
        _, error = adding.communicate(timeout=60)
    ended = "flywheel: ended by SIGTERM; the same command repeats the interrupted build."
    assert adding.returncode == 128 + signal.SIGTERM and error.splitlines()[-1] == ended
