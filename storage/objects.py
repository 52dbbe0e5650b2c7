"""Read and write files by name, in a folder or an object store. The lake's blobs and checkpoints use this interface.

fsspec supports more kinds of stores than obstore, and the lake's address already has an fsspec file system.

Names are relative POSIX paths. When a write to a local folder returns, the file is on the disk, not only in the page
cache. In an object store, the service is responsible for durability.
"""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from typing_extensions import override

from schemas.failure import FULL, DamagedError, LakeError
from storage.explained import explained
from storage.patience import StoreRetry, T

CHUNK = 16 << 20
_REFUSED = (304, 412)
"""HTTP statuses of a conditional write to an existing name. MinIO before May 2024 answers 304."""
_UNKNOWN = 501
"""HTTP status of a server without conditional writes."""
Buffer = bytes | bytearray | memoryview


class Sink(Protocol):
    """Writable end of a new file."""

    def write(self, data: Buffer, /) -> object:
        """Write all of `data`."""


class ObjectStore(ABC):
    """Files below one folder or address, with counts of the bytes read and written.

    Every method raises `LakeError` for problems that the user can fix: no space, no rights, unreachable storage.
    """

    gap = 0
    """Maximum bytes between two ranges up to which one read of both is cheaper."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.read_bytes = 0
        self.written_bytes = 0

    def path(self, name: str) -> str:
        """Return the full address of a file or folder."""
        return f"{self.place.rstrip('/')}/{name}"

    def local_path(self, name: str) -> Path | None:
        """Return the path of a file or folder on this machine's disk; None if the store is not on a disk."""
        return None

    @abstractmethod
    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of every file below a folder, by name; empty if the folder does not exist."""

    @abstractmethod
    def create(self, name: str, size: int) -> AbstractContextManager[Sink]:
        """Open a new file of `size` bytes for writing. After an error, the file is removed."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write a small file atomically, and replace an existing file."""

    @abstractmethod
    def put_once(self, name: str, data: bytes) -> bool:
        """Write a small file atomically unless it exists. Exactly one of several writers of different bytes gets
        True."""

    def put_or_get(self, name: str, data: bytes) -> bytes:
        """Write a small file atomically unless it exists, and return its content: `data`, or another writer's bytes.

        The write is repeated if the file's owner deletes it between the refused write and the read.
        """
        while not self.put_once(name, data):
            with suppress(FileNotFoundError):
                return self.get(name)
        return data

    @abstractmethod
    def get(self, name: str) -> bytes:
        """Return the content of a small file. Raises FileNotFoundError if the file does not exist."""

    def age_s(self, name: str) -> float:
        """Return the age of a file in seconds, by the store's own clock. Raises FileNotFoundError if it does not
        exist."""
        probe = f"{name}.{uuid4().hex}"
        self.put(probe, b"")
        try:
            return self._written_at(probe) - self._written_at(name)
        finally:
            self.delete(probe)

    @abstractmethod
    def _written_at(self, name: str) -> float: ...

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether the file exists."""

    @abstractmethod
    def read(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        """Fill each buffer with the bytes of a file from the given offset.

        Raises:
            DamagedError: the file does not exist, or ends too early.
        """

    @abstractmethod
    def move(self, folder: str, to: str) -> None:
        """Rename a folder to an unused name. Another process may remove files of the folder meanwhile."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file. A missing file is not an error."""

    def patiently(self, operation: Callable[[], T]) -> T:
        """Run a repeatable operation, retrying it while the store is unreachable, and return its result."""
        return operation()

    def prune(self, folders: str) -> None:  # noqa: B027  nothing to do where there are no folders
        """Remove empty folders whose name matches a pattern."""

    def chunks(self, name: str, size: int) -> Iterator[memoryview]:
        """Yield the first `size` bytes of a file in pieces. A piece is valid until the next piece is read."""
        buffer = memoryview(bytearray(min(size, CHUNK)))
        for start in range(0, size, CHUNK):
            part = buffer[: min(CHUNK, size - start)]
            self.read(name, [(start, part)])
            yield part

    def _damaged(self, name: str, problem: str) -> DamagedError:
        return DamagedError(f"{self.path(name)} {problem}.", "Restore it, or load another step.")


def inside(name: str) -> str:
    """Return a name after checking that it stays inside its folder. Names may come from rows, manifests or records.

    Raises:
        LakeError: the name leads out of its folder: an absolute path, `..`, or a zero byte.
    """
    if name.startswith("/") or "\0" in name or ".." in name.split("/"):
        raise LakeError(
            f"{name[:200]!r} is not a file name: it leads out of its folder.",
            "Use a name without `..`, a leading `/` and null bytes.",
        )
    return name


def open_store(
    place: str | os.PathLike[str],
    filesystem: Any = None,
    patience: StoreRetry | None = None,
) -> ObjectStore:
    """Open the store at a folder, or at an address such as `s3://bucket/prefix`.

    Args:
        place: folder or address.
        filesystem: an fsspec file system with the credentials and endpoint of the address; if not given, fsspec makes
            one from the environment.
        patience: retry policy for an unreachable store; no retries if not given.
    """
    address = os.fspath(place).removeprefix("file://")
    return RemoteStore(address, filesystem, patience) if "://" in address else LocalStore(Path(address))


class LocalStore(ObjectStore):
    """Files below a folder of this machine, or of a file system that all ranks share."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root.expanduser().absolute()))
        self._root = Path(self.place)

    @override
    def local_path(self, name: str) -> Path | None:
        return self._at(name)

    @override
    def sizes(self, folder: str = "") -> dict[str, int]:
        found: dict[str, int] = {}
        for at, _, names in os.walk(self._at(folder)):  # skips a folder that another process removes
            for path in (Path(at, name) for name in names):
                with suppress(FileNotFoundError):  # removed by another process
                    if path.is_file():
                        found[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return found

    @contextmanager
    @override
    def create(self, name: str, size: int) -> Iterator[Sink]:
        path = self._at(name)
        with explained(self.place):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb", buffering=0) as file:
                try:
                    _reserve(file.fileno(), size)
                    yield _CompleteWriter(file)
                    os.fsync(file.fileno())
                except BaseException:
                    path.unlink(missing_ok=True)
                    raise
        self.written_bytes += size

    @override
    def put(self, name: str, data: bytes) -> None:
        with self._part(name, data) as part:
            os.replace(part, self._at(name))

    @override
    def put_once(self, name: str, data: bytes) -> bool:
        with self._part(name, data) as part:
            try:
                os.link(part, self._at(name))
            except FileExistsError:
                return False
        return True

    @override
    def get(self, name: str) -> bytes:
        with explained(self.place):
            data = self._at(name).read_bytes()
        self.read_bytes += len(data)
        return data

    @override
    def _written_at(self, name: str) -> float:
        return self._at(name).stat().st_mtime

    @override
    def exists(self, name: str) -> bool:
        return self._at(name).is_file()

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        try:
            file = os.open(self._at(name), os.O_RDONLY)
        except FileNotFoundError as error:
            raise self._damaged(name, "is missing") from error
        try:
            for start, buffer in ranges:
                done = 0
                while done < len(buffer):
                    got = os.preadv(file, [buffer[done:]], start + done)
                    if got == 0:
                        raise self._damaged(name, "ends too early")
                    done += got
                self.read_bytes += done
        finally:
            os.close(file)

    @override
    def move(self, folder: str, to: str) -> None:
        with explained(self.place), suppress(FileNotFoundError):
            self._at(folder).rename(self._at(to))

    @override
    def delete(self, name: str) -> None:
        self._at(name).unlink(missing_ok=True)

    @override
    def prune(self, folders: str) -> None:
        for path in self._root.glob(folders):
            with suppress(OSError):  # not empty, or not a folder
                path.rmdir()

    def _at(self, name: str) -> Path:
        return self._root / inside(name)

    @contextmanager
    def _part(self, name: str, data: bytes) -> Iterator[Path]:
        """Write the bytes to a temporary file, which the `with` block renames. The file is removed after the block."""
        folder = self._at(name).parent
        part = folder / f".part-{uuid4().hex}"
        with explained(self.place):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield part
            finally:
                part.unlink(missing_ok=True)
            _sync_folder(folder)
        self.written_bytes += len(data)


class RemoteStore(ObjectStore):
    """Files below an address that fsspec supports; `memory://` is a fake for tests."""

    gap = 64 * 1024

    def __init__(self, place: str, filesystem: Any = None, patience: StoreRetry | None = None) -> None:
        super().__init__(place)
        self._patience = patience or StoreRetry(place)
        files: Any = filesystem if filesystem is not None else _files_at(place)
        self._files, self._root = files, str(files._strip_protocol(place)).rstrip("/")

    @override
    def patiently(self, operation: Callable[[], T]) -> T:
        return self._patience.over(operation)

    @override
    def sizes(self, folder: str = "") -> dict[str, int]:
        found = self.patiently(lambda: self._found(folder))
        # a server lists folders too, even empty folders
        files = {path: about["size"] for path, about in found.items() if about["type"] == "file" and path[-1] != "/"}
        return {path.removeprefix(f"{self._root}/"): size for path, size in files.items()}

    @contextmanager
    @override
    def create(self, name: str, size: int) -> Iterator[Sink]:
        with explained(self.place):
            file = self._files.open(self._at(name), "wb")
            try:
                yield file
            except BaseException:
                file.discard()
                raise
            file.close()
        self.written_bytes += size

    @override
    def put(self, name: str, data: bytes) -> None:
        self.patiently(lambda: self._files.pipe_file(self._at(name), data))
        self.written_bytes += len(data)

    @override
    def put_once(self, name: str, data: bytes) -> bool:
        made = None
        while made is None:
            made = self.patiently(lambda: self._created(name, data))
        self.written_bytes += len(data) if made else 0
        return made

    def _created(self, name: str, data: bytes) -> bool | None:
        """Whether this process wrote the file; None if another process deleted it after the refused write."""
        try:
            self._files.pipe_file(self._at(name), data, mode="create")
        except OSError as error:
            status = _status(error)
            if status == _UNKNOWN:
                raise no_conditional_writes(self.place) from error
            if status not in _REFUSED:
                raise
            try:
                return self._files.cat_file(self._at(name)) == data  # equal if the response to our write was lost
            except FileNotFoundError:
                return None
        return True

    @override
    def get(self, name: str) -> bytes:
        data = self.patiently(lambda: self._files.cat_file(self._at(name)))
        self.read_bytes += len(data)
        return data

    @override
    def _written_at(self, name: str) -> float:
        self._files.invalidate_cache()
        return self.patiently(lambda: self._files.modified(self._at(name))).timestamp()

    @override
    def exists(self, name: str) -> bool:
        return self.patiently(lambda: self._files.exists(self._at(name)))

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        starts = [start for start, _ in ranges]
        ends = [start + len(buffer) for start, buffer in ranges]
        at = [self._at(name)] * len(ranges)
        try:
            parts = self.patiently(lambda: self._files.cat_ranges(at, starts, ends, on_error="raise"))
        except FileNotFoundError as error:
            raise self._damaged(name, "is missing") from error
        for part, (_, buffer) in zip(parts, ranges, strict=True):
            if len(part) != len(buffer):
                raise self._damaged(name, "ends too early")
            buffer[:] = part
            self.read_bytes += len(part)

    @override
    def move(self, folder: str, to: str) -> None:
        names = list(self.sizes(folder))
        for name in names:
            copy = self._at(to + name.removeprefix(folder))
            with suppress(FileNotFoundError):
                self.patiently(lambda name=name, copy=copy: self._files.cp_file(self._at(name), copy))
        for name in names:
            self.delete(name)

    @override
    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.patiently(lambda: self._files.rm_file(self._at(name)))

    def _found(self, folder: str) -> dict[str, Any]:
        self._files.invalidate_cache()
        try:
            return self._files.find(self._at(folder), detail=True)
        except FileNotFoundError:
            return {}

    def _at(self, name: str) -> str:
        return f"{self._root}/{inside(name)}".rstrip("/")


def no_conditional_writes(place: str) -> LakeError:
    """Return the error for a server without conditional writes, on which two writers of one name can collide."""
    problem = f"The server of {place} has no conditional writes (`If-None-Match: *`)."
    return LakeError(problem, "Use one that has them (docs/run.md): without, two runs lose each other's rows.")


def _status(error: OSError) -> int | None:
    """Return the HTTP status of a refused conditional write. Messages differ between servers and can be empty."""
    if isinstance(error, FileExistsError):
        return _REFUSED[-1]
    response: Any = getattr(error.__cause__, "response", None) or {}
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode")


def _files_at(place: str) -> Any:
    """Return an fsspec file system with settings from the environment. On S3 it caches no listings, because other
    processes write to the same address."""
    from fsspec.core import url_to_fs

    return url_to_fs(place, **({"use_listings_cache": False} if place.startswith("s3://") else {}))[0]


class _CompleteWriter:
    """Writes all bytes. A single write to a raw file may write only some of them."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Buffer) -> None:
        view = memoryview(data)
        while len(view):
            view = view[self._file.write(view) :]


def _reserve(file: int, size: int) -> None:
    """Reserve the space before the first write, so that a full disk is reported at once."""
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno in (*FULL, errno.EINTR):
            raise  # other errors: this file system cannot reserve


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
