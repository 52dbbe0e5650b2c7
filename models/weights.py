"""Identifies a checkpoint's weights, and the adapter in a checkpoint's folder."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from models.safe import weight_files
from schemas.failure import CheckpointError

ADAPTER = "adapter"
"""Folder within a checkpoint for its training's adapter, in peft's format.

`transformers` does not read this folder; it loads the checkpoint's whole weights.
"""
PARENT = "parent.json"
"""File in the adapter's folder that names the adapter's parent checkpoint."""
ABOUT = ("config.json", "job.json")
"""Files that describe how a checkpoint's weights were made."""
OURS = re.compile(r"-[0-9a-f]{12}$")
"""End of a name that `Weights.name` makes."""
BLOCK = 1 << 12
"""Number of bytes that are read from every tensor."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A trained adapter: its folder, its parent checkpoint, and the fingerprint of the parent's weights."""

    directory: Path
    parent: Path
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Weights:
    """A policy's checkpoint, as a server may hold it."""

    directory: Path
    version: str

    @property
    def name(self) -> str:
        """Returns the server's name of the weights, with the fingerprint, since versions of two lakes may have equal
        names."""
        return f"{self.version}-{fingerprint(self.directory) or 'unseen'}"


def fingerprint(directory: Path) -> str:
    """Computes the fingerprint of a checkpoint's weights, independent of its path: 12 digits; empty without weights.

    It covers the whole files that describe how the checkpoint was made, and each file's name and size. Of every tensor
    it covers only the beginning, since a training changes all tensors.
    """
    try:
        about = [file for name in ABOUT if (file := directory / name).is_file()]
        files = sorted([*weight_files(directory), *about])
        seen = hashlib.sha256()
        for file in files:
            about = file.stat()
            seen.update(repr((file.name, about.st_size)).encode())
            seen.update(_print_of(file, about.st_size, about.st_mtime_ns))
        return seen.hexdigest()[:12]
    except (OSError, CheckpointError):  # it is being removed, or its weights are ambiguous
        return ""


@lru_cache(maxsize=4096)
def _print_of(file: Path, size: int, _: int) -> bytes:
    """Hashes one file in its last written state."""
    seen = hashlib.sha256()
    with file.open("rb") as content:
        for at in _places(content, size) if file.suffix == ".safetensors" else range(0, size, BLOCK):
            content.seek(at)
            seen.update(content.read(BLOCK))
    return seen.digest()


def _places(content: BinaryIO, size: int) -> list[int]:
    """Lists the positions of a file's header and tensors; empty if it is no file of tensors."""
    try:
        length = int.from_bytes(content.read(8), "little")
        header = json.loads(content.read(min(length, size)))
        begin = [int(one["data_offsets"][0]) for name, one in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return list(range(0, size, BLOCK))
    return [*range(0, 8 + length, BLOCK), *(8 + length + at for at in sorted(begin))]


def write_parent(folder: Path, parent: Path) -> None:
    """Writes the parent checkpoint of an adapter into the adapter's folder."""
    about = {"directory": str(parent.absolute()), "fingerprint": fingerprint(parent)}
    (folder / PARENT).write_text(json.dumps(about, indent=1) + "\n")


def adapter_of(directory: Path) -> Adapter | None:
    """Finds the adapter that a checkpoint's training made; None if it made none."""
    folder = directory / ADAPTER
    try:
        about = json.loads((folder / PARENT).read_text())
        found = Adapter(folder, Path(about["directory"]), str(about["fingerprint"]))
        return found if found.fingerprint else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
