"""Folders of a run outside the lake: work in progress, Data Docs, caches. All can be deleted."""

from pathlib import Path

from common.process import home
from schemas.config import Config
from storage.address import resolve
from storage.lake import Lake
from storage.objects import inside
from storage.schema_marker import NAME as MARK


def lake_if_any(config: Config) -> Lake | None:
    """Return the config's lake, or None where its place is empty; raise LakeError if something else is there."""
    store = resolve(config.lake).store()
    if store.exists(MARK) or store.sizes():
        return Lake.open(config.lake)
    return None


def work_folder(lake: Lake, name: str) -> Path:
    """Return a folder for work in progress on this lake."""
    folder = home() / "work" / inside(lake.lake_id) / inside(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def docs_folder(config: Config, lake: Lake) -> Path:
    """Return the folder of this lake's Data Docs."""
    return work_folder(lake, "data_docs")


def cache_folder(lake: Lake, version: str) -> Path:
    """Return the folder for a policy's checkpoint, fetched from the lake."""
    return work_folder(lake, "checkpoints") / inside(version)
