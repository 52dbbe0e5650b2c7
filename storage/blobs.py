"""Bytes by name: the mark of the lake, checkpoints, and whatever is not a table.

A directory is committed by its manifest: files go first, then one small file with the sha256 of each. Whoever
finds no manifest finds no directory, so a process that dies on the way leaves nothing that looks whole.
"""

import hashlib
import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path, PurePosixPath
from uuid import uuid4

from typing_extensions import override

from schemas.config.sections import LakeConfig
from schemas.failure import CheckpointError
from storage.address import Address, resolve

MANIFEST = "manifest.json"


class BlobStore(ABC):
    """Bytes by name. Names are relative POSIX paths."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes a blob whole, over what was there."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Writes a blob unless it exists; of several writers at once exactly one is told True."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """A blob's bytes; raises FileNotFoundError."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is such a blob."""

    @abstractmethod
    def list(self, prefix: str = "") -> list[str]:
        """Names of all blobs below a folder, sorted."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a blob or everything below a folder; nothing to remove is no error."""

    @abstractmethod
    def address(self, name: str) -> str:
        """The full address of a blob or folder, as others may store it."""

    @abstractmethod
    def local_path(self, name: str) -> Path | None:
        """Where a blob or folder lies on this machine's disk, or None if it does not."""

    def put_directory(self, local: Path, name: str) -> str:
        """Stores a directory's files under `name`, which is returned; the manifest is written last.

        Raises:
            CheckpointError: the directory is missing or empty.
        """
        files = {path.relative_to(local).as_posix(): path for path in sorted(local.rglob("*")) if path.is_file()}
        files.pop(MANIFEST, None)
        if not files:
            raise CheckpointError(f"{local} is no directory with files.", "Check the path.")
        sums = {file: _sha256(path.read_bytes()) for file, path in files.items()}
        manifest = json.dumps({"files": sums}, indent=2, sort_keys=True).encode()
        if not (self.exists(f"{name}/{MANIFEST}") and self.get(f"{name}/{MANIFEST}") == manifest):
            self.delete(f"{name}/{MANIFEST}")
            for file, path in files.items():
                self.put(f"{name}/{file}", path.read_bytes())
            self.put(f"{name}/{MANIFEST}", manifest)
        return name

    def get_directory(self, name: str, local_cache: Path) -> Path:
        """A local directory with the files stored under a name (or at a full address), every hash checked.

        A store on this machine's disk hands out its own directory; others copy into `local_cache` once.

        Raises:
            CheckpointError: no manifest, a missing file or a wrong hash; names the file.
        """
        name = self._name(name)
        address = self.address(name)
        if not self.exists(f"{name}/{MANIFEST}"):
            raise CheckpointError(f"{address}/{MANIFEST} is missing.", "It was never stored whole: store it again.")
        sums = json.loads(self.get(f"{name}/{MANIFEST}"))["files"]
        here = self.local_path(name)
        if here is None:
            here = local_cache / hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()[:16]
            if not here.is_dir():
                self._fetch(name, sums, here)
        _check(here, sums, address)
        return here

    def _name(self, name: str) -> str:
        root = self.address("")
        if not name.startswith("/") and "://" not in name:
            return name
        if not name.startswith(root):
            raise CheckpointError(f"{name} is not below {root}.", "Give the name that put_directory returned.")
        return name.removeprefix(root)

    def _fetch(self, name: str, sums: dict[str, str], target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
        try:
            for file in [file for file in sums if self.exists(f"{name}/{file}")]:
                (part / file).parent.mkdir(parents=True, exist_ok=True)
                (part / file).write_bytes(self.get(f"{name}/{file}"))
            _check(part, sums, self.address(name))
            (part / MANIFEST).write_bytes(self.get(f"{name}/{MANIFEST}"))
            if not target.is_dir():
                part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


class FsspecBlobStore(BlobStore):
    """Blobs below one address: a folder, `s3://`, or `memory://` (the fake for tests)."""

    def __init__(self, place: Address) -> None:
        self._place = place
        self._files = place.filesystem

    @classmethod
    def open(cls, config: LakeConfig, *below: str) -> "FsspecBlobStore":
        """The store at `lake.uri`, or below it."""
        place = resolve(config)
        return cls(Address(place.path(*below), place.filesystem, place.delta_options))

    @override
    def put(self, name: str, data: bytes) -> None:
        with self._place.explained():
            if self._place.local:
                os.replace(self._part(name, data), self._path(name))
            else:
                self._files.pipe_file(self._path(name), data)

    @override
    def create(self, name: str, data: bytes) -> bool:
        with self._place.explained():
            try:
                if self._place.local:
                    self._link(name, data)
                else:
                    self._files.pipe_file(self._path(name), data, mode="create")
            except OSError as error:
                if isinstance(error, FileExistsError) or "pre-condition" in str(error):  # how S3 says it exists
                    return False
                raise
        return True

    @override
    def get(self, name: str) -> bytes:
        with self._place.explained():
            return self._files.cat_file(self._path(name))

    @override
    def exists(self, name: str) -> bool:
        with self._place.explained():
            return self._files.exists(self._path(name))

    @override
    def list(self, prefix: str = "") -> list[str]:
        with self._place.explained():
            root = self._files._strip_protocol(self._place.uri)
            found = self._files.find(self._path(prefix))
        return sorted(str(PurePosixPath(path).relative_to(root)) for path in found)

    @override
    def delete(self, name: str) -> None:
        with self._place.explained():
            if self._files.exists(self._path(name)):
                self._files.rm(self._path(name), recursive=True)

    @override
    def address(self, name: str) -> str:
        return self._place.path(name)

    @override
    def local_path(self, name: str) -> Path | None:
        return Path(self._path(name)) if self._place.local else None

    def _path(self, name: str) -> str:
        return self._place.path(name).rstrip("/")

    def _part(self, name: str, data: bytes) -> str:
        target = Path(self._path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.parent / f".part-{uuid4().hex}"
        try:
            with part.open("xb") as file:
                file.write(data)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        return str(part)

    def _link(self, name: str, data: bytes) -> None:
        part = self._part(name, data)
        try:
            os.link(part, self._path(name))
        finally:
            os.unlink(part)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check(directory: Path, sums: dict[str, str], address: str) -> None:
    for file, expected in sums.items():
        path = directory / file
        if not path.is_file():
            raise CheckpointError(f"{address}/{file} is missing.", "Store the directory again.")
        if _sha256(path.read_bytes()) != expected:
            raise CheckpointError(f"{address}/{file} is not what was stored (sha256).", "Store the directory again.")
