"""Read and write the files of a sandbox from the host, below one descriptor, without following links.

A policy made these files. So each name is opened from its folder, links are not followed, and only plain files are
read, up to the requested size. Reads for a reward (`seen`) work with any rights of a file, so that an unreadable file
does not count as missing. If this process is root, all operations run as the sandbox's user, so that they cannot access
files that the sandbox cannot.
"""

import ctypes
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

MOST_BYTES = 1 << 20
MOST_ENTRIES = 400
DEEPEST = 8
_MOST_PARTS = 4 * DEEPEST
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a folder."""

    name: str
    folder: bool
    size: int
    """Bytes of a file; 0 for anything else."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The file, folder or link at a path."""

    content: bytes | None = None
    """Content of a plain file; None if it is too large, and for anything else."""
    folder: bool = False
    executable: bool = False
    link: str | None = None
    """Target of a link; None for anything else."""


class Files:
    """The files below an open folder.

    Args:
        root: the folder's descriptor, which must stay open while the object is used.
        owner: user and group to act as, for root; None for the process's own.
    """

    def __init__(self, root: int, owner: tuple[int, int] | None) -> None:
        self._root, self._owner = root, owner

    def listed(self, path: str = "") -> list[Entry]:
        """Lists a folder, folders first, by name; leaves out names that are no text and entries beyond `MOST_ENTRIES`.
        Raises OSError if there is no such folder."""
        with self._acting(), self._opened(path, _FOLDER) as folder:
            found = [self._entry(folder, name) for name in sorted(os.listdir(folder))[:MOST_ENTRIES] if _plain(name)]
        return sorted((one for one in found if one), key=lambda one: (not one.folder, one.name))

    def read(self, path: str, most: int = MOST_BYTES) -> bytes:
        """Reads a plain file's content.

        Raises:
            OSError: the file does not exist, is a link or a device, or may not be read.
            ValueError: the file is larger than `most` bytes.
        """
        with self._acting(), self._opened(path, _READ) as file:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                raise OSError(f"{path} is not a plain file")
            content = _read(file, most)
        if content is None:
            raise ValueError(f"{path} is larger than {most:,} bytes")
        return content

    def seen(self, path: str, most: int = MOST_BYTES) -> Seen | None:
        """Reads the file, folder or link at a path, with any rights.

        Rights that the sandbox's user lacks are added for the read and then removed.

        Returns:
            None only if the path does not exist and none of its folders is a link.
        """
        *above, name = _parts(path)
        with self._acting(), ExitStack() as stack:
            folder = self._root
            stack.enter_context(_lent(folder, stat.S_IXUSR))
            try:
                for part in above:
                    folder = stack.enter_context(_handle(part, folder, stat.S_IXUSR))
                    if stat.S_ISLNK(os.fstat(folder).st_mode):
                        return Seen()
                file = stack.enter_context(_handle(name, folder, stat.S_IRUSR))
            except (FileNotFoundError, NotADirectoryError):
                return None
            except PermissionError:
                return Seen()
            about = os.fstat(file)
            if stat.S_ISLNK(about.st_mode):
                return Seen(link=os.readlink("", dir_fd=file))
            if not stat.S_ISREG(about.st_mode):
                return Seen(folder=stat.S_ISDIR(about.st_mode))
            content = _content(file, most) if about.st_size <= most else None
            return Seen(content, executable=bool(about.st_mode & stat.S_IXUSR))

    def stamp(self, path: str) -> tuple[int, int] | None:
        """Returns the inode and the time of change (ns) of a file; None if it does not exist."""
        *above, name = _parts(path)
        with self._acting(), suppress(OSError), self._opened("/".join(above), _FOLDER) as folder:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return about.st_ino, about.st_ctime_ns
        return None

    def paths(self, most: int = MOST_ENTRIES) -> list[str] | None:
        """Lists all paths at any depth, including folders, with any rights.

        Returns:
            None if the list is unknown: there are more than `most`, a path is too deep, or files change
            meanwhile.
        """
        found: list[str] = []
        with self._acting(), suppress(OSError), closing(_below(self._root)) as below:
            for path in below:
                if len(found) == most or path.count("/") >= _MOST_PARTS:
                    return None
                found.append(path)
            return found
        return None

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Writes a file, and makes its missing folders; raises OSError if that is not possible."""
        *above, name = _parts(path)
        with self._acting():
            self._within(above, True, lambda folder: _written(folder, name, content, mode))

    def make_folder(self, path: str) -> None:
        """Makes a folder and its missing parents; raises OSError."""
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
        """Calls `do` on the folder at these parts; makes missing folders if `make`."""
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
        return Entry(name, stat.S_ISDIR(about.st_mode), about.st_size if stat.S_ISREG(about.st_mode) else 0)

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """Acts as the sandbox's user in this thread while the context lasts; `setfsuid` applies to one thread."""
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
    """Converts a policy's path to a path relative to `/work`; a relative path starts at `folder`.

    Raises:
        ValueError: the path is not below `/work`.
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
    if ".." in parts or "." in parts or "\0" in path or not (parts or empty) or len(parts) > _MOST_PARTS:
        raise OSError(f"{path[:80]!r} is not a path")
    return parts


def _below(folder: int, above: str = "") -> Generator[str]:
    """Yields the paths of all entries of a folder, recursively."""
    with _lent(folder, stat.S_IRUSR | stat.S_IXUSR):
        for name in os.listdir(f"/proc/self/fd/{folder}"):
            yield f"{above}{name}"
            with _handle(name, folder, 0) as handle:
                if stat.S_ISDIR(os.fstat(handle).st_mode):
                    yield from _below(handle, f"{above}{name}/")


@contextmanager
def _handle(name: str, folder: int, rights: int) -> Iterator[int]:
    """Opens a handle of a folder's entry, which needs no rights, and adds these rights while the context lasts."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        with _lent(handle, rights):
            yield handle
    finally:
        os.close(handle)


@contextmanager
def _lent(handle: int, rights: int) -> Iterator[None]:
    """Gives the owner of a file or folder these rights while the context lasts."""
    about, itself = os.fstat(handle), f"/proc/self/fd/{handle}"
    mode = stat.S_IMODE(about.st_mode)
    if mode & rights == rights or not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
        yield
        return
    os.chmod(itself, mode | rights)
    try:
        yield
    finally:
        os.chmod(itself, mode)


def _content(handle: int, most: int) -> bytes | None:
    file = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _read(file, most)
    finally:
        os.close(file)


def _read(file: int, most: int) -> bytes | None:
    """Reads the rest of a file; None if it is more than `most` bytes."""
    content = b""
    while len(content) <= most and (part := os.read(file, most + 1 - len(content))):
        content += part
    return content if len(content) <= most else None


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
            raise OSError(f"{name} is not a plain file")
        os.ftruncate(file, 0)
        os.fchmod(file, mode)
        while content:
            content = content[os.write(file, content) :]
    finally:
        os.close(file)
