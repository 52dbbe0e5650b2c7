"""Where checkpoints rest: a local folder, or any place that fsspec reaches. Names are relative POSIX paths.

A local file is on the disk, not only in the page cache, when its writer returns; elsewhere the service answers for it.
"""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import fsspec
from fsspec.core import url_to_fs
from typing_extensions import override

from schemas.failure import CheckpointError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Buffer = bytes | bytearray | memoryview


class Sink(Protocol):
    """What bytes of a new file go into."""

    def write(self, data: Buffer, /) -> object:
        """Takes all of `data`."""


class Store(ABC):
    """Files below one place; counts what is read and written."""

    gap = 0
    """Two ranges that lie at most this many bytes apart are cheaper read as one."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.read_bytes = 0
        self.written_bytes = 0

    def path(self, name: str) -> str:
        """The full address of a file, for people."""
        return f"{self.place.rstrip('/')}/{name}"

    @abstractmethod
    def sizes(self, folder: str = "") -> dict[str, int]:
        """Bytes of every file below a folder, by name; empty if there is no such folder."""

    @abstractmethod
    def create(self, name: str, size: int) -> Any:
        """A context manager with the `Sink` of a new file of `size` bytes; on an error the file is removed."""

    @abstractmethod
    def put_once(self, name: str, data: bytes) -> bool:
        """Writes a small file whole or not at all; False, and nothing happens, if there is one of that name."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """A small file.

        Raises:
            FileNotFoundError: there is none.
        """

    @abstractmethod
    def read(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        """Fills each buffer with a file's bytes from an offset on.

        Raises:
            CheckpointError: there is no such file, or it ends too early.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a file; nothing to remove is no error."""

    def prune(self, folders: str) -> None:  # noqa: B027  nothing to do where there are no folders
        """Removes empty folders whose name matches a pattern."""

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns errors of the storage that a person can mend into a `CheckpointError`; others pass unchanged."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                mend = "Free some space and save again; the last committed checkpoint is whole."
                raise CheckpointError(f"No space is left at {self.place}.", mend) from error
            if isinstance(error, PermissionError | NotADirectoryError | ConnectionError | TimeoutError):
                mend = "Check the address and its rights."
                raise CheckpointError(f"{self.place} cannot be used: {error}.", mend) from error
            raise

    def _missing(self, name: str) -> CheckpointError:
        return CheckpointError(f"{self.path(name)} is missing.", "Restore it, or load another step.")

    def _short(self, name: str) -> CheckpointError:
        return CheckpointError(f"{self.path(name)} ends too early.", "Restore it, or load another step.")


def open_store(place: str | os.PathLike[str], filesystem: fsspec.AbstractFileSystem | None = None) -> Store:
    """The store at a folder, or at an address such as `s3://bucket/prefix`.

    Args:
        place: folder or address.
        filesystem: fsspec's file system for the address, set up with its credentials and endpoint; if not given, fsspec
            makes one from the environment.
    """
    words = os.fspath(place).removeprefix("file://")
    if filesystem is None and "://" not in words:
        return LocalStore(Path(words))
    return RemoteStore(words, filesystem)


class LocalStore(Store):
    """A folder of this machine, or of a file system that all ranks share."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root.expanduser().absolute()))
        self._root = Path(self.place)

    @override
    def sizes(self, folder: str = "") -> dict[str, int]:
        found: dict[str, int] = {}
        for path in (self._root / folder).rglob("*"):
            with suppress(FileNotFoundError):  # swept meanwhile
                if path.is_file():
                    found[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return found

    @contextmanager
    @override
    def create(self, name: str, size: int) -> Iterator[Sink]:
        path = self._root / name
        with self.explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb", buffering=0) as file:
                try:
                    _reserve(file.fileno(), size)
                    yield _Whole(file)
                    os.fsync(file.fileno())
                except BaseException:
                    path.unlink(missing_ok=True)
                    raise
        self.written_bytes += size

    @override
    def put_once(self, name: str, data: bytes) -> bool:
        path = self._root / name
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        with self.explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(part, path)
            except FileExistsError:
                return False
            finally:
                part.unlink(missing_ok=True)
            _sync_folder(path.parent)
        self.written_bytes += len(data)
        return True

    @override
    def get(self, name: str) -> bytes:
        data = (self._root / name).read_bytes()
        self.read_bytes += len(data)
        return data

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        try:
            file = os.open(self._root / name, os.O_RDONLY)
        except FileNotFoundError as error:
            raise self._missing(name) from error
        try:
            for start, buffer in ranges:
                done = 0
                while done < len(buffer):
                    got = os.preadv(file, [buffer[done:]], start + done)
                    if got == 0:
                        raise self._short(name)
                    done += got
                self.read_bytes += done
        finally:
            os.close(file)

    @override
    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    @override
    def prune(self, folders: str) -> None:
        for path in self._root.glob(folders):
            with suppress(OSError):  # not empty, or no folder
                path.rmdir()


class RemoteStore(Store):
    """Any other place, through fsspec."""

    gap = 64 * 1024

    def __init__(self, place: str, filesystem: fsspec.AbstractFileSystem | None = None) -> None:
        super().__init__(place)
        files: Any = filesystem if filesystem is not None else url_to_fs(place)[0]
        self._files, self._root = files, str(files._strip_protocol(place)).rstrip("/")

    @override
    def sizes(self, folder: str = "") -> dict[str, int]:
        with self.explained():
            self._files.invalidate_cache()
            try:
                found = self._files.find(f"{self._root}/{folder}".rstrip("/"), detail=True)
            except FileNotFoundError:
                return {}
        return {path.removeprefix(f"{self._root}/"): about["size"] for path, about in found.items()}

    @contextmanager
    @override
    def create(self, name: str, size: int) -> Iterator[Sink]:
        with self.explained():
            file = self._files.open(f"{self._root}/{name}", "wb")
            try:
                yield file
            except BaseException:
                file.discard()
                raise
            file.close()
        self.written_bytes += size

    @override
    def put_once(self, name: str, data: bytes) -> bool:
        with self.explained():
            try:
                self._files.pipe_file(f"{self._root}/{name}", data, mode="create")
            except OSError as error:
                if isinstance(error, FileExistsError) or "pre-condition" in str(error):  # how S3 says it exists
                    return False
                raise
        self.written_bytes += len(data)
        return True

    @override
    def get(self, name: str) -> bytes:
        with self.explained():
            data = self._files.cat_file(f"{self._root}/{name}")
        self.read_bytes += len(data)
        return data

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        path = f"{self._root}/{name}"
        starts = [start for start, _ in ranges]
        ends = [start + len(buffer) for start, buffer in ranges]
        with self.explained():
            try:
                parts = self._files.cat_ranges([path] * len(ranges), starts, ends, on_error="raise")
            except FileNotFoundError as error:
                raise self._missing(name) from error
        for part, (_, buffer) in zip(parts, ranges, strict=True):
            if len(part) != len(buffer):
                raise self._short(name)
            buffer[:] = part
            self.read_bytes += len(part)

    @override
    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), self.explained():
            self._files.rm_file(f"{self._root}/{name}")


class _Whole:
    """Writes until all is written; a raw file may take less at once."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Buffer) -> None:
        view = memoryview(data)
        while len(view):
            view = view[self._file.write(view) :]


def _reserve(file: int, size: int) -> None:
    """Takes the space before anything is written, so that a full disk is known at once."""
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno in (*_FULL, errno.EINTR):
            raise  # other errors: this file system cannot reserve


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
