"""Cache files of an object store on this machine's disk, for repeated reads of a lake.

A file of a table never changes and its name is never reused, so a copy is always valid. After data was forgotten in the
lake, all copies are removed. All processes of this machine share the cache folder, and the user can delete it.
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
"""Seconds after its last use for which a copy is not removed, because a process may still read it."""
TOGETHER = 8
"""Number of files that are fetched at the same time."""
FRESH_S = 60.0
"""Maximum seconds until a running process notices that another process forgot data. A new process notices at once."""
MARK = "generation"
"""File with the generation of the copies."""


class FileCache:
    """Copies of the files below an address.

    Args:
        folder: folder for the copies.
        place: path of the address in the file system.
        filesystem: fsspec file system of the address.
        most_bytes: maximum size of all copies. Copies in use count, and are not removed.
        generation: returns a value. All copies become invalid when it changes.
    """

    def __init__(
        self, folder: Path, place: str, filesystem: Any, most_bytes: int, generation: Callable[[], object]
    ) -> None:
        self.folder, self._place, self._most = folder, place, most_bytes
        self._filesystem, self._generation = filesystem, generation
        self._asked = float("-inf")

    def hold(self, files: Mapping[str, int]) -> bool:
        """Copy files to the same names in the folder. Return False if they exceed the maximum size.

        Args:
            files: size of each file in bytes, by name.

        Raises:
            FileNotFoundError: the object store no longer has a file.
            LakeError: a name leads out of the folder.
        """
        if sum(files.values()) > self._most:
            return False
        while True:
            try:
                self._hold(files)
            except FileNotFoundError:  # in the store; or in the folder, if another process cleared it
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
        """Whether a copy exists. Its modification time becomes the time of this use."""
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
        """Remove the least recently used copies until there is room, except copies that may be in use."""
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
