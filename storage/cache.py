"""Copies of an object store's files on this machine's disk, for repeated reads of a lake.

A table's file never changes and its name is used once, so a copy is always right. After upkeep the copies of older
files are not used any more; all copies go when the lake reports that data was forgotten. All processes of this machine
share the folder, and the user can delete it.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from storage.objects import inside, open_store

IN_USE_S = 900.0
"""Seconds since its last use within which a copy may still be read and is not removed."""
TOGETHER = 8
"""Number of files fetched at the same time."""
FRESH_S = 60.0
"""Seconds after which a running process notices that others forgot data; a new process notices at once."""
MARK = "generation"
"""File with the generation of the copies."""


class FileCache:
    """Copies of files below a place.

    Args:
        folder: folder of the copies.
        place: the place, as the file system names it.
        filesystem: fsspec's, of the place.
        most_bytes: maximum size of the copies; copies in use count and stay.
        generation: returns a value whose change makes all older copies invalid.
    """

    def __init__(
        self, folder: Path, place: str, filesystem: Any, most_bytes: int, generation: Callable[[], object]
    ) -> None:
        self.folder, self._place, self._most = folder, place, most_bytes
        self._filesystem, self._generation = filesystem, generation
        self._asked = float("-inf")

    def hold(self, files: Mapping[str, int]) -> bool:
        """Copy files of these sizes to the same names in the folder; return False where they exceed the maximum size.

        Raises:
            FileNotFoundError: the place does not have one of them any more.
            LakeError: a name leads out of the folder.
        """
        if sum(files.values()) > self._most:
            return False
        while True:
            try:
                self._hold(files)
            except FileNotFoundError:  # in the place, or in the folder, which another process cleared meanwhile
                if not all(self._filesystem.exists(f"{self._place}/{name}") for name in files):
                    raise
            else:
                return True

    def _hold(self, files: Mapping[str, int]) -> None:
        self._renew()
        missing = {name: size for name, size in files.items() if not self._touched(name)}
        if missing:
            self._make_room(sum(missing.values()))
            self._fetch(missing)

    def clear(self) -> None:
        """Remove all copies."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _renew(self) -> None:
        if time.monotonic() - self._asked < FRESH_S:
            return
        now, mark = str(self._generation()), open_store(self.folder)
        try:
            before = mark.get(MARK).decode()
        except FileNotFoundError:
            before = None
        if before != now:
            self.clear()
            mark.put(MARK, now.encode())
        self._asked = time.monotonic()

    def _touched(self, name: str) -> bool:
        """Whether there is a copy; its modification time becomes the time of this use."""
        try:
            os.utime(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def _fetch(self, files: Mapping[str, int]) -> None:
        parts = {name: self.folder / f".part-{uuid4().hex}" for name in files}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            there = [f"{self._place}/{name}" for name in files]
            self._filesystem.get(there, [str(part) for part in parts.values()], batch_size=TOGETHER)
            for name, part in parts.items():
                self._path(name).parent.mkdir(parents=True, exist_ok=True)
                part.replace(self._path(name))
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Remove the least recently used copies until there is room, but none that may be in use."""
        copies: list[tuple[float, int, Path]] = []
        for name, taken in open_store(self.folder).sizes().items():
            with contextlib.suppress(FileNotFoundError):
                if name != MARK:
                    copies.append(((self.folder / name).stat().st_mtime, taken, self.folder / name))
        over, before = sum(taken for _, taken, _ in copies) + size - self._most, time.time() - IN_USE_S
        for asked, taken, path in sorted(copies):
            if over <= 0 or asked > before:
                return
            path.unlink(missing_ok=True)
            over -= taken

    def _path(self, name: str) -> Path:
        return self.folder / inside(name)
