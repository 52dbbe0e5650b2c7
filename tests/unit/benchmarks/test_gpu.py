"""The GPU benchmarks without a GPU: one plain line and no error; on a CPU their tiny setting runs to the table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.__main__ import main
from benchmarks.gpu._device import run

NAMES = ["cost_model", "replay", "save_stall", "train_step"]
ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1"}


def started(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"benchmarks.gpu.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=250)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, so nothing is skipped")
@pytest.mark.parametrize("name", ["__main__", "_device"])
def test_without_a_gpu_a_gpu_benchmark_prints_so_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    assert main() == 0 if name == "__main__" else run("", lambda _: ([], [])) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("skipped: there is no GPU here") and printed.count("\n") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_the_tiny_setting_measures_every_arm(name: str, tmp_path: Path) -> None:
    done = started(name, "--device", "cpu", "--short", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "out.json").read_text())
    arms = {"cost_model": 2, "replay": 4, "save_stall": 3, "train_step": 2}
    assert len(written["rows"]) >= arms[name] and not written["bars"]
