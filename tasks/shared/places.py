"""Where a run keeps files that are not the lake's: work in progress, Data Docs, caches. All can be deleted."""

import os
from pathlib import Path

from schemas.config import Config
from storage.lake import Lake


def home() -> Path:
    """The work folder: `FLYWHEEL_HOME`, else `.flywheel` in the current directory."""
    return Path(os.environ.get("FLYWHEEL_HOME", ".flywheel")).absolute()


def work_folder(lake: Lake, name: str) -> Path:
    """A folder for work in progress on this lake."""
    folder = home() / "work" / lake.lake_id / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def docs_folder(config: Config, lake: Lake) -> Path:
    """Where Great Expectations' Data Docs of this lake go."""
    return work_folder(lake, "data_docs")


def cache_folder(lake: Lake) -> Path:
    """Where checkpoints fetched from the lake are kept."""
    return work_folder(lake, "checkpoints")
