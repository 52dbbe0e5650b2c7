"""Fetch the model of `policy.base` from the Hugging Face Hub."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from common import log
from schemas.config.hub import HubModel, hub_model, missing_file, snapshot_of
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError

OFFLINE = "HF_HUB_OFFLINE"
OFF = "ON"
"""Value of `HF_HUB_OFFLINE` that a process of this project sets for its libraries. A user's own value (`1`) forbids a
fetch, too."""
_DOWNLOAD = """\
import sys
from huggingface_hub import snapshot_download
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

(enable_progress_bars if sys.stderr.isatty() else disable_progress_bars)()
unused = ["*.bin", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx*", "*.pt", "*.pth", "original/*"]
try:
    snapshot_download(sys.argv[1], revision=sys.argv[2], ignore_patterns=unused)
except Exception as error:
    print(type(error).__name__, *str(error).strip().splitlines()[:1])
    sys.exit(1)
"""
"""Downloads a model into the cache; if that fails, prints the error's class and first line. It leaves out weights in
formats that no policy is read from."""
_REASONS = {
    "RepositoryNotFoundError": "it does not exist, or is private (`hf auth login`)",
    "GatedRepoError": "its licence must be accepted on its page first, with `hf auth login`",
    "RevisionNotFoundError": "it has no such revision",
    "LocalEntryNotFoundError": "the Hub does not answer",
}
"""Reasons of failed downloads, by the error's class."""


def fetched_base(policy: PolicyConfig) -> Path:
    """Return the folder of `policy.base`. If it names a model of the Hub that is not cached, fetch the model first.

    Raises:
        UsageError: there is no such folder and no such model, or the model cannot be fetched. The message has the
            command that downloads it.
    """
    model = hub_model(policy.base)
    if model is not None and snapshot_of(model) is None and (problem := _fetch(model)):
        raise UsageError(
            f"`policy.base`: there is no folder {policy.base}, and no such model was fetched from the Hub: {problem}.",
            f"Name a model folder or `tiny`, or download the model: `{model.command}`, and set policy.base=DIR.",
        )
    return policy.folder


@cache
def _fetch(model: HubModel) -> str:
    """Download a model into the cache, and return the reason if that fails; else an empty text."""
    if os.environ.get(OFFLINE, OFF) not in (OFF, "", "0"):
        return f"{OFFLINE} is set"
    environ = {name: value for name, value in os.environ.items() if name not in (OFFLINE, "TQDM_DISABLE")}
    environ.pop("HF_HUB_DISABLE_PROGRESS_BARS", None)
    if log.volume() != "quiet":
        log.write("info", f"fetching {model.repo} ({model.revision}) from the Hub into its cache")
    command = [sys.executable, "-c", _DOWNLOAD, model.repo, model.revision]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        name, _, line = done.stdout.strip().partition(" ")
        return _REASONS.get(name) or (line or name or f"the download ended with {done.returncode}").rstrip(".")
    return f"it has no {missing}" if (missing := missing_file(model)) else ""


def given_revision(policy: PolicyConfig) -> dict[str, str]:
    """Return the Hub's name and the commit of `policy.base`; empty for a folder and the small policy."""
    model = hub_model(policy.base)
    snapshot = model and snapshot_of(model)
    return {"hub": model.repo, "revision": snapshot.name} if model and snapshot else {}
