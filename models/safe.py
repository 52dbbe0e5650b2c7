"""How a model directory is read: it may come from anywhere, so nothing in it is run.

Weights come from safetensors alone; a directory's own code (`auto_map`) is never imported, and nothing is fetched.
Every `from_pretrained` of this project is given one of the two mappings below.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.failure import CheckpointError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Files of weights that run code when they are read."""
SAFE: Mapping[str, Any] = {"trust_remote_code": False, "local_files_only": True}
"""For settings, tokenizers and processors."""
SAFE_WEIGHTS: Mapping[str, Any] = {**SAFE, "use_safetensors": True}
"""For models."""


def require_safetensors(directory: Path) -> None:
    """Raises CheckpointError for a directory whose weights are not in safetensors; a pickled one is named."""
    files = sorted(file for file in directory.iterdir() if file.is_file()) if directory.is_dir() else []
    if any(file.suffix == ".safetensors" for file in files):
        return
    pickled = next((file.name for file in files if file.suffix in PICKLES), None)
    found = f"its weights are in {pickled}, which can run code" if pickled else "there are no weights"
    raise CheckpointError(f"{directory} has no *.safetensors: {found}.", "Save it in safetensors.")
