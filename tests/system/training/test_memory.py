"""One small iteration from pixels to promotion: what the whole process tree holds at most, and what it leaves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peak_memory import PeakMemory, folder_bytes
from schemas.config import load_config
from storage.lake import Lake

CONFIG = """
name = "memory"
[lake]
uri = "{lake}"
min_free_mb = 10
[environments.miniwob]
browsers = 1
pages = 4
[suite]
tasks = ["click-test", "enter-text"]
practice = []
held_out = []
[collect]
trajectories_per_task = 30
[train]
steps_first = 10
batch = 8
warmup = 1
[evaluate]
seeds = 4
explorer_seeds = 4
untrained_seeds = 2
"""
MIB = 1 << 20
MOST = 2_600 * MIB
"""Of all processes at once. They hold about 1,850, in the training: the wheel, Prefect's server (200), the trainer
(900). A second trainer, or a network and an optimiser kept in the wheel, would not fit."""
MOST_BROWSER = 480 * MIB
"""The browser with its four pages holds about 300; another page costs 12, another browser 75. Sixteen pages or three
browsers that are not closed would not fit."""
POLICY, MASTERS, STEP, REPORT = 4_500_000, 8_500_000, 25_000, 2_000_000
"""Bytes in the lake: one checkpoint (3.9 million), the fp32 weights beside a trained one (8), a step with its picture
and annotations (7,000), the report. The trainer's moments, its samples or the screenshots twice would not fit."""


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_an_iteration_of_sixty_plays_keeps_to_its_memory_and_its_disk(tmp_path: Path):
    lake, file = tmp_path / "lake", tmp_path / "memory.toml"
    file.write_text(CONFIG.format(lake=lake))
    environ = {**os.environ, "FLYWHEEL_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "apps.cli", "run", "--config", str(file), "--iterations", "1"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, env=environ, stdout=log, stderr=log) as wheel,
        PeakMemory(wheel.pid, interval=0.2) as memory,
    ):
        code = wheel.wait(timeout=550)
    assert code == 0, (tmp_path / "log").read_text()[-3000:]
    assert memory.left() == []
    assert 500 * MIB < memory.peak.bytes < MOST, memory.peak
    browser = sum(size for name, size in memory.peak.programs.items() if "chrom" in name or "headless" in name)
    assert 50 * MIB < browser < MOST_BROWSER, memory.peak
    found = Lake.open(load_config(file, [], {}).lake)
    assert found.count("trajectories") == 60
    policies = found.count("policies")
    most = POLICY * policies + MASTERS * (policies - 1) + STEP * found.count("steps") + REPORT
    assert folder_bytes(lake) < most, sorted((folder_bytes(part), part.name) for part in lake.iterdir())
