"""Name the folders of a run outside the lake: unfinished work, Data Docs and caches. All of them can be deleted."""

from pathlib import Path

from common.process import home
from schemas.config import Config
from storage.address import resolve
from storage.lake import Lake
from storage.objects import inside
from storage.schema_marker import NAME as MARK


def lake_if_any(config: Config) -> Lake | None:
    """Return the lake of the config, or None if its address is empty. Raise LakeError if the address has other data."""
    store = resolve(config.lake).store()
    if store.exists(MARK) or store.sizes():
        return Lake.open(config.lake)
    return None


def work_folder(lake: Lake, name: str) -> Path:
    """Return a folder for unfinished work on this lake."""
    folder = home() / "work" / inside(lake.lake_id) / inside(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def docs_folder(config: Config, lake: Lake) -> Path:
    """Return the folder of the lake's Data Docs."""
    return work_folder(lake, "data_docs")


def cache_folder(lake: Lake, version: str) -> Path:
    """Return the folder for the fetched checkpoint of a policy."""
    return work_folder(lake, "checkpoints") / inside(version)
