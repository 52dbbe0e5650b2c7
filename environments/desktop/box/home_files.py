"""Write, read and list the files of a desktop's home, for its start, its verifiers and its clients."""

import base64
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MOST_FILES = 500
"""Maximum files of a home that are read for a verifier."""
MOST_BYTES = 4 << 20
"""Maximum bytes of one file that is read for a verifier."""
THEN = 1_700_000_000
"""Modification time of the initial files, in seconds since 1970; equal for every start."""


def set_out(home: Path, files: Iterable[Mapping[str, Any]]) -> None:
    """Writes files (`path` below the home, `content` in base64, `mode`) and folders (`path` ends with a slash)."""
    for one in files:
        place = home / str(one["path"])
        if str(one["path"]).endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(base64.b64decode(one["content"]))
            place.chmod(int(one.get("mode", 0o644)))
        os.utime(place, (THEN, THEN))


def tree(home: Path) -> list[dict[str, Any]]:
    """Lists everything below a home except hidden files.

    Returns:
        The `path` of each (a folder's ends with a slash); for a file also its `content` in base64 and whether it is
        `executable`. A file that is too large has no content.
    """
    found: list[dict[str, Any]] = []
    for folder, folders, files in os.walk(home):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(folder)
        found += [{"path": f"{(here / name).relative_to(home)}/"} for name in folders]
        for name in sorted(files):
            if not name.startswith(".") and len(found) < MOST_FILES:
                found.append(_file(here / name, home))
    return found


def _file(place: Path, home: Path) -> dict[str, Any]:
    one: dict[str, Any] = {"path": str(place.relative_to(home))}
    try:
        if place.is_file() and not place.is_symlink() and place.stat().st_size <= MOST_BYTES:
            one["content"] = base64.b64encode(place.read_bytes()).decode()
            one["executable"] = bool(place.stat().st_mode & 0o100)
    except OSError:
        pass  # it does not exist or cannot be read, so it has no content
    return one
