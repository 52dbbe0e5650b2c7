"""What tells one checkpoint's weights from another's, and the adapter that a training leaves beside them."""

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
"""The folder of a checkpoint with what its training made alone, as peft writes it; `transformers` does not look into
it, and loads the whole weights beside it."""
PARENT = "parent.json"
"""The file of that folder that says beside which weights it belongs."""
ABOUT = ("config.json", "job.json")
"""Files that say how a checkpoint's weights were made."""
OURS = re.compile(r"-[0-9a-f]{12}$")
"""How a name ends that `Weights` gives."""
BLOCK = 1 << 12
"""Bytes that are read of every tensor."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A trained adapter: where it is, the checkpoint it stands beside, and what that checkpoint's weights were."""

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
        """What a server calls them: versions of two lakes may have one name, these files have not."""
        return f"{self.version}-{fingerprint(self.directory) or 'unseen'}"


def fingerprint(directory: Path) -> str:
    """What a checkpoint's weights are known by, wherever they lie: 12 digits; nothing where there are none.

    Of what says how it was made, all of it; of the weights the beginning of every tensor, as a training changes them
    all; of each file its name and size.
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
    except (OSError, CheckpointError):  # it is just being removed, or holds no weights that one can be sure of
        return ""


@lru_cache(maxsize=4096)
def _print_of(file: Path, size: int, _: int) -> bytes:
    """Of one file, as it was last written."""
    seen = hashlib.sha256()
    with file.open("rb") as content:
        for at in _places(content, size) if file.suffix == ".safetensors" else range(0, size, BLOCK):
            content.seek(at)
            seen.update(content.read(BLOCK))
    return seen.digest()


def _places(content: BinaryIO, size: int) -> list[int]:
    """Where its tensors begin, and its header, if it is a file of tensors."""
    try:
        length = int.from_bytes(content.read(8), "little")
        header = json.loads(content.read(min(length, size)))
        begin = [int(one["data_offsets"][0]) for name, one in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return list(range(0, size, BLOCK))
    return [*range(0, 8 + length, BLOCK), *(8 + length + at for at in sorted(begin))]


def write_parent(folder: Path, parent: Path) -> None:
    """Says in an adapter's folder beside which checkpoint it belongs."""
    about = {"directory": str(parent.absolute()), "fingerprint": fingerprint(parent)}
    (folder / PARENT).write_text(json.dumps(about, indent=1) + "\n")


def adapter_of(directory: Path) -> Adapter | None:
    """The adapter that a checkpoint's training made; None if it made none."""
    folder = directory / ADAPTER
    try:
        about = json.loads((folder / PARENT).read_text())
        found = Adapter(folder, Path(about["directory"]), str(about["fingerprint"]))
        return found if found.fingerprint else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
