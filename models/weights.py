"""What tells one checkpoint's weights from another's, and the adapter that a training leaves beside them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

ADAPTER = "adapter"
"""The folder of a checkpoint with what its training made alone, as peft writes it; `transformers` does not look into
it, and loads the whole weights beside it."""
PARENT = "parent.json"
"""The file of that folder that says beside which weights it belongs."""
BLOCK, BLOCKS = 1 << 14, 64
"""Bytes that are read of a large file at a time, and how often."""


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
        return f"{self.version}-{fingerprint(self.directory)}"


def fingerprint(directory: Path) -> str:
    """What a checkpoint's files are known by, wherever they lie: 12 digits; those of nothing where there is none.

    Of each file its name and size and what is in it; of a large one the blocks that an even walk through it meets, as
    a training changes every layer.
    """
    seen = hashlib.sha256()
    for file in sorted(directory.iterdir()) if directory.is_dir() else []:
        if file.is_file():
            size = file.stat().st_size
            seen.update(repr((file.name, size)).encode())
            with file.open("rb") as content:
                for at in range(0, size, max(BLOCK, size // BLOCKS)):
                    content.seek(at)
                    seen.update(content.read(BLOCK))
    return seen.hexdigest()[:12]


def write_parent(folder: Path, parent: Path) -> None:
    """Says in an adapter's folder beside which checkpoint it belongs."""
    about = {"directory": str(parent.absolute()), "fingerprint": fingerprint(parent)}
    (folder / PARENT).write_text(json.dumps(about, indent=1) + "\n")


def adapter_of(directory: Path) -> Adapter | None:
    """The adapter that a checkpoint's training made; None if it made none."""
    folder = directory / ADAPTER
    try:
        about = json.loads((folder / PARENT).read_text())
        return Adapter(folder, Path(about["directory"]), str(about["fingerprint"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
