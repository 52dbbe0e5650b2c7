"""Run one training of either side in a process of its own: ours here, TRL's in an environment that has it."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import torch

from benchmarks.trl.workload import Workload
from common.process import home

TRL = "trl==1.16.0"
THREADS = 2
ROOT = Path(__file__).parents[2]


def trl_python() -> Path:
    """The Python of an environment that has TRL, and torch and transformers from ours; made on the first call.

    A machine without a network names a Python that has TRL in the environment variable `FLYWHEEL_TRL_PYTHON`.
    """
    if named := os.environ.get("FLYWHEEL_TRL_PYTHON"):
        return Path(named)
    folder = home() / "benchmarks" / "trl" / TRL
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        venv.create(folder, clear=True, with_pip=True)
        (own,) = folder.glob("lib/python*/site-packages")
        (own / "shared.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
        subprocess.run([python, "-m", "pip", "install", "-q", TRL], check=True)
        (folder / "whole").touch()
    return python


def command_of(work: Workload, arm: str, python: Path) -> list[str]:
    """Return the command of a worker: of `ours SETTING` or `trl SETTING`, with TRL's Python."""
    side, _, setting = arm.partition(" ")
    if side == "ours":
        return [sys.executable, "-m", "benchmarks.trl.ours", str(work.job), setting]
    return [str(python), str(ROOT / "benchmarks" / "trl" / "theirs.py"), str(work.chats), setting]


def environment(device: str) -> dict[str, str]:
    """Return the environment of a worker; on a CPU, each has two threads."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    threads = {"OMP_NUM_THREADS": str(THREADS)} if device == "cpu" else {}
    return {**os.environ, **threads, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}


def run(work: Workload, arm: str, python: Path, timeout_s: float = 1800.0) -> dict[str, float]:
    """One training's numbers, which are the worker's last line.

    Args:
        work: what is trained.
        arm: `ours SETTING` or `trl SETTING`.
        python: TRL's.
        timeout_s: after which it is ended.

    Raises:
        RuntimeError: with the end of what the worker wrote, if it failed.
    """
    done = subprocess.run(
        command_of(work, arm, python),
        env=environment(work.device),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    if done.returncode:
        raise RuntimeError(f"{arm} on {work.name}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
