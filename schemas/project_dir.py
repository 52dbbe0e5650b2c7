"""Folder of a process for files that can be deleted."""

import os
from pathlib import Path


def home() -> Path:
    """The work folder: `FLYWHEEL_HOME`, else `.flywheel` in the current directory."""
    return Path(os.environ.get("FLYWHEEL_HOME", ".flywheel")).absolute()
