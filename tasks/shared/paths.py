"""Where a run keeps files that are not the lake's: work in progress, Data Docs, caches. All can be deleted."""

from pathlib import Path

from schemas.config import Config
from schemas.project_dir import home
from storage.address import resolve
from storage.lake import Lake
from storage.objects import inside
from storage.schema_marker import NAME as MARK


def lake_if_any(config: Config) -> Lake | None:
    """The config's lake, or None where its place is empty; raises LakeError if something else is there."""
    store = resolve(config.lake).store()
    if store.exists(MARK) or store.sizes():
        return Lake.open(config.lake)
    return None


def work_folder(lake: Lake, name: str) -> Path:
    """A folder for work in progress on this lake."""
    folder = home() / "work" / inside(lake.lake_id) / inside(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def docs_folder(config: Config, lake: Lake) -> Path:
    """Where Great Expectations' Data Docs of this lake go."""
    return work_folder(lake, "data_docs")


def cache_folder(lake: Lake, version: str) -> Path:
    """Where a policy's checkpoint, fetched from the lake, is kept."""
    return work_folder(lake, "checkpoints") / inside(version)
