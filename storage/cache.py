"""Files of an object store that lie on this machine's disk, too, so that what reads a lake again reads it from there.

A file of a table never changes, and its name is used once, so a copy is always right; after upkeep nobody asks for
those of before, and they go when the place says that something was forgotten. The folder is shared by all processes of
this machine and can be deleted.
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
"""What was asked for within this time may still be read, and is not removed."""
TOGETHER = 8
"""Files that are fetched at the same time."""
FRESH_S = 60.0
"""That others forgot something is known to a process that goes on after so long; to a new one at once."""
MARK = "generation"
"""The file that says which generation the copies are of."""


class FileCache:
    """Copies of files below a place.

    Args:
        folder: where they lie.
        place: the place, as the file system names it.
        filesystem: fsspec's, of the place.
        most_bytes: what the copies may take; what is in use counts and stays.
        generation: what changes when copies of before are not to stay.
    """

    def __init__(
        self, folder: Path, place: str, filesystem: Any, most_bytes: int, generation: Callable[[], object]
    ) -> None:
        self.folder, self._place, self._most = folder, place, most_bytes
        self._filesystem, self._generation = filesystem, generation
        self._asked = float("-inf")

    def hold(self, files: Mapping[str, int]) -> bool:
        """Makes copies of files of these sizes, at the same names in the folder; False where they are too many.

        Raises:
            FileNotFoundError: the place has one of them no more.
            LakeError: a name leads out of the folder.
        """
        if sum(files.values()) > self._most:
            return False
        while True:
            try:
                self._hold(files)
            except FileNotFoundError:  # of the place, or of the folder, which another process cleared meanwhile
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
        """Removes all copies."""
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
        """Whether there is a copy; its time of change is when it was last asked for."""
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
        """Removes what was not asked for the longest until there is room, but nothing that may be in use."""
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
