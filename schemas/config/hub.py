"""Find models of the Hugging Face Hub in the local cache, without a network.

The cache has a folder for each model: `refs/REVISION` names a commit, `snapshots/COMMIT` has its files, and `blobs` has
their contents (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).
"""

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

WEIGHTS = "model.safetensors"
_ID = re.compile(r"(?P<repo>(?:\b[\w.-]{1,96}\b/)?\b[\w.-]{1,96}\b)(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_NEVER = re.compile(r"--|\.\.|\.git\Z")
"""Texts in no name of the Hub. Source: `huggingface_hub` 2.4.0, `utils/_validators.py`, as is the rest of a name."""
SMALL, PRETRAINED = "tiny", "pretrained"
"""Values of `policy.base` for the small policy with random weights, and for its base in this package."""


class HubModel(NamedTuple):
    """A model of the Hub."""

    repo: str
    """`ORGANISATION/NAME`, or `NAME` for an old model without an organisation."""
    revision: str
    """Branch, tag or commit."""

    @property
    def command(self) -> str:
        """Return the command that downloads the model into a folder."""
        revision = "" if self.revision == "main" else f" --revision {self.revision}"
        return f"hf download {self.repo}{revision} --local-dir DIR"


def hub_model(base: str) -> HubModel | None:
    """Return the model that a name on the Hub or `NAME@REVISION` names; None for a folder, the small policy or another
    text."""
    found = _ID.fullmatch(base)
    if found is None or base in (SMALL, PRETRAINED) or _NEVER.search(found["repo"]) or Path(base).exists():
        return None
    return HubModel(found["repo"], found["revision"] or "main")


def snapshot_of(model: HubModel) -> Path | None:
    """Return the folder of a model in the local cache; None if it is not there or a file that it needs is missing."""
    return None if missing_file(model) else _cached(model)


def missing_file(model: HubModel) -> str:
    """Return the first file that a model in the local cache lacks; empty for a complete one.

    A model needs `config.json`, and `model.safetensors` or each shard that `model.safetensors.index.json` names.
    """
    snapshot = _cached(model)
    if not (snapshot / "config.json").is_file():
        return "config.json"
    if (snapshot / WEIGHTS).is_file():
        return ""
    try:
        shards = sorted(set(json.loads((snapshot / f"{WEIGHTS}.index.json").read_bytes())["weight_map"].values()))
        return next((name for name in shards if not (snapshot / name).is_file()), "" if shards else WEIGHTS)
    except FileNotFoundError:
        return WEIGHTS
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"readable {WEIGHTS}.index.json"


def _cached(model: HubModel) -> Path:
    """Return the folder in the local cache where a model's files are, or would be."""
    folder = _cache() / f"models--{model.repo.replace('/', '--')}"
    try:
        commit = (folder / "refs" / model.revision).read_text().strip()
    except OSError:
        commit = model.revision
    return folder / "snapshots" / commit


def _cache() -> Path:
    """Return the folder that `huggingface_hub.constants.HF_HUB_CACHE` names, read from the same variables.

    As there, an empty variable is a value: the folder is then below the working directory.
    """
    cache = os.getenv("XDG_CACHE_HOME", os.path.join(os.path.expanduser("~"), ".cache"))
    home = _expanded(os.getenv("HF_HOME", os.path.join(cache, "huggingface")))
    found = os.getenv("HF_HUB_CACHE", os.getenv("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub")))
    return Path(_expanded(found))


def _expanded(path: str) -> str:
    return os.path.expandvars(os.path.expanduser(path))
