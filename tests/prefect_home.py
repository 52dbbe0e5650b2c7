"""Prefect's folder as every server but a user's first finds it: making its database takes four seconds of CPU."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import prefect

MADE = Path(tempfile.gettempdir()) / f"flywheel-tests-prefect-{prefect.__version__}-{os.getuid()}"
"""What is copied; made by whoever needs it first, and kept for the next session."""
FIRST = ("-m", "prefect", "server", "database", "upgrade", "-y")


def prefect_home(folder: Path) -> Path:
    """Makes a folder one of Prefect's that has been used before, unless it is there; returns it."""
    if not folder.exists():
        with MADE.with_name(f"{MADE.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not MADE.exists():
                _make()
        shutil.copytree(MADE, folder, ignore=shutil.ignore_patterns("*-shm"))
    return folder


def _make() -> None:
    with tempfile.TemporaryDirectory(dir=MADE.parent) as place:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
        environ["PREFECT_HOME"] = f"{place}/prefect"
        Path(environ["PREFECT_HOME"]).mkdir()
        subprocess.run([sys.executable, *FIRST], env=environ, check=True, timeout=240, stdout=subprocess.DEVNULL)
        Path(environ["PREFECT_HOME"]).rename(MADE)
