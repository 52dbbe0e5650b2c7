"""Interpreters that have other trainers' packages, which save checkpoints anew for the nightly tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import lacks

GOLDEN = Path(__file__).parents[3] / "golden" / "checkpoints"
PYTHON = os.environ.get("FLYWHEEL_TRAINERS_PYTHON", sys.executable)
"""The interpreter, in a virtual environment of its own if the packages do not fit this project's."""


def save_anew(package: str, script: str, ranks: int, *arguments: object) -> None:
    """Runs a script of GOLDEN on several ranks; skips the test if the interpreter lacks the package."""
    module = package.partition("=")[0].replace("-", ".")
    if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(lacks(f"no {module}", f"pip install {package} safetensors"))
    launch = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    environ.pop("PYTHONPATH", None)
    words = [*launch, str(GOLDEN / script), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
