"""The files of a jail as the host reads and writes them: below one descriptor, and never through a link.

What is there was made by a policy. So every name is opened from the folder before it, links are not followed, only
plain files are read, and no more of them than asked for. As root all of it is done as the user of the jail, so that
nothing is read or written there that the jail itself could not.
"""

import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

MOST_BYTES = 1 << 20
MOST_ENTRIES = 400
DEEPEST = 8
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands in a folder."""

    name: str
    folder: bool
    size: int
    """Bytes of a file; 0 of anything else."""
    executable: bool = False


class Files:
    """The files below an open folder.

    Args:
        root: its descriptor, which stays open for as long as this is used.
        owner: user and group to act as, for root; None acts as we are.
    """

    def __init__(self, root: int, owner: tuple[int, int] | None) -> None:
        self._root, self._owner = root, owner

    def listed(self, path: str = "") -> list[Entry]:
        """What a folder holds, folders first, by name; names that are no text and what lies beyond `MOST_ENTRIES` are
        left out. Raises OSError if there is no such folder."""
        with self._acting(), self._opened(path, _FOLDER) as folder:
            found = [self._entry(folder, name) for name in sorted(os.listdir(folder))[:MOST_ENTRIES] if _plain(name)]
        return sorted((one for one in found if one), key=lambda one: (not one.folder, one.name))

    def read(self, path: str, most: int = MOST_BYTES) -> bytes:
        """A plain file's content.

        Raises:
            OSError: there is none, it is a link or a device, or it may not be read.
            ValueError: it is larger than `most` bytes.
        """
        with self._acting(), self._opened(path, _READ) as file:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                raise OSError(f"{path} is no plain file")
            content = b""
            while len(content) <= most and (part := os.read(file, most + 1 - len(content))):
                content += part
        if len(content) > most:
            raise ValueError(f"{path} is larger than {most:,} bytes")
        return content

    def found(self, path: str) -> Entry | None:
        """What is at a path; None if nothing is."""
        *above, name = _parts(path)
        try:
            with self._acting(), self._opened("/".join(above), _FOLDER) as folder:
                return self._entry(folder, name)
        except OSError:
            return None

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Writes a file, with the folders that it needs; raises OSError if that is not possible."""
        *above, name = _parts(path)
        with self._acting():
            self._within(above, True, lambda folder: _written(folder, name, content, mode))

    def make_folder(self, path: str) -> None:
        """Makes a folder, with those above it; raises OSError."""
        with self._acting():
            self._within(_parts(path), True, lambda folder: None)

    def remove(self, path: str) -> None:
        """Removes a file or an empty folder; raises OSError."""
        *above, name = _parts(path)
        with self._acting(), self._opened("/".join(above), _FOLDER) as folder:
            try:
                os.unlink(name, dir_fd=folder)
            except IsADirectoryError:
                os.rmdir(name, dir_fd=folder)

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        parts = _parts(path, empty=True)
        if not parts:
            yield self._root
            return
        file = self._within(parts[:-1], False, lambda folder: os.open(parts[-1], flags, dir_fd=folder))
        try:
            yield file
        finally:
            os.close(file)

    def _within(self, parts: list[str], make: bool, do: Callable[[int], T]) -> T:
        """What `do` makes of the folder at these parts, made where they are not there and are to be."""
        folder = os.dup(self._root)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=folder)
                below = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            return do(folder)
        finally:
            os.close(folder)

    def _entry(self, folder: int, name: str) -> Entry | None:
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        plain = stat.S_ISREG(about.st_mode)
        size = about.st_size if plain else 0
        return Entry(name, stat.S_ISDIR(about.st_mode), size, plain and bool(about.st_mode & stat.S_IXUSR))

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """As the jail's user, in this thread, for as long as it takes: `setfsuid` is a thread's own."""
        if self._owner is None:
            yield
            return
        libc, (user, group) = ctypes.CDLL(None), self._owner
        libc.setfsgid(group)
        libc.setfsuid(user)
        try:
            yield
        finally:
            libc.setfsuid(os.geteuid())
            libc.setfsgid(os.getegid())


def relative(path: str, folder: str = "") -> str:
    """A path below `/work`, as a policy writes it, from there; one that is not absolute begins at `folder`.

    Raises:
        ValueError: it leads elsewhere.
    """
    whole = PurePosixPath("/work", folder, path)
    parts: list[str] = []
    for part in whole.parts[1:]:
        if part == "..":
            if not parts:
                raise ValueError(f"{path} is not below /work")
            parts.pop()
        else:
            parts.append(part)
    if parts[:1] != ["work"]:
        raise ValueError(f"{path} is not below /work")
    return "/".join(parts[1:])


def _parts(path: str, empty: bool = False) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if ".." in parts or "." in parts or "\0" in path or not (parts or empty) or len(parts) > 4 * DEEPEST:
        raise OSError(f"{path[:80]!r} is no path")
    return parts


def _plain(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _written(folder: int, name: str, content: bytes, mode: int) -> None:
    file = os.open(name, _WRITE, mode, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{name} is no plain file")
        os.ftruncate(file, 0)
        os.fchmod(file, mode)
        while content:
            content = content[os.write(file, content) :]
    finally:
        os.close(file)
