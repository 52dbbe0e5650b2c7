"""Find models of the Hugging Face Hub in the local cache, without a network.

The cache has a folder for each model: `refs/REVISION` names a commit, `snapshots/COMMIT` has its files, and `blobs` has
their contents (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")


class HubModel(NamedTuple):
    """A model of the Hub."""

    repo: str
    """`ORGANISATION/NAME`."""
    revision: str
    """Branch, tag or commit."""

    @property
    def command(self) -> str:
        """Return the command that downloads the model into a folder."""
        revision = "" if self.revision == "main" else f" --revision {self.revision}"
        return f"hf download {self.repo}{revision} --local-dir DIR"


def hub_model(base: str) -> HubModel | None:
    """Return the model that `ORGANISATION/NAME` or `ORGANISATION/NAME@REVISION` names; None for a folder or another
    text."""
    found = _ID.fullmatch(base)
    if found is None or Path(base).exists():
        return None
    return HubModel(found["repo"], found["revision"] or "main")


def snapshot_of(model: HubModel) -> Path | None:
    """Return the folder of a model in the local cache; None if it is not there or its download is not finished."""
    folder = _cache() / f"models--{model.repo.replace('/', '--')}"
    try:
        commit = (folder / "refs" / model.revision).read_text().strip()
    except OSError:
        commit = model.revision
    snapshot = folder / "snapshots" / commit
    unfinished = any((folder / "blobs").glob("*.incomplete"))
    return snapshot if (snapshot / "config.json").is_file() and not unfinished else None


def _cache() -> Path:
    """Return the folder that `huggingface_hub.constants.HF_HUB_CACHE` names."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    found = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(found)).expanduser()
