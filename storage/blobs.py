"""Store directories, such as checkpoints of policies, outside the tables of a lake.

A manifest commits a directory. The files are written and hashed first; the manifest, a small file with the sha256 of
each file, is written last. A directory without a manifest does not exist, so a killed process leaves no partial
directory. On a disk, the manifest also has the sizes and modification times of the files. A load then hashes only files
that changed.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Container, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from schemas.failure import CheckpointError
from storage.objects import ObjectStore, inside, open_store

MANIFEST = "manifest.json"


class Blobs:
    """Directories below an address."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def put_directory(self, local: Path, name: str, only: Container[str] | None = None) -> str:
        """Store the files of a directory under a name, and return the name. The manifest is written last.

        Args:
            local: the directory.
            name: name in the store.
            only: files to store, relative to the directory; all files if not given.

        Raises:
            CheckpointError: the directory is missing or empty.
        """
        source = open_store(local)
        sizes = source.sizes()
        files = {file: sizes[file] for file in sorted(sizes) if file != MANIFEST and (only is None or file in only)}
        if not files:
            raise CheckpointError(f"{local} is not a directory with files.", "Check the path.")
        self.store.delete(f"{name}/{MANIFEST}")
        sums = {
            file: self.store.patiently(partial(_copy, source, file, size, self.store, f"{name}/{file}"))
            for file, size in files.items()
        }
        self.store.put(f"{name}/{MANIFEST}", _manifest(sums, self.store.local_path(name)))
        return name

    def get_directory(self, name: str, local_cache: Path, without: tuple[str, ...] = ()) -> Path:
        """Return a local directory with the unchanged files of a stored directory.

        A store on this machine's disk returns its own directory, unless the directory still has dropped files. Other
        stores copy the files into `local_cache` once.

        Args:
            name: result of `put_directory`, or the full address.
            local_cache: folder for copies.
            without: prefixes of files to leave out.

        Raises:
            CheckpointError: the manifest or a file is missing, or a hash is wrong. The message has the file.
        """
        name = self._name(name)
        address = self.store.path(name)
        known = self._manifest(name)
        sums = {file: value for file, value in known["files"].items() if not file.startswith(without)}
        here = self.store.local_path(name)
        if here is None or any((here / part).exists() for part in known.get("dropped", ())):
            here = local_cache / hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()[:16]
            if not here.is_dir():
                self._fetch(name, sums, here)
            known = json.loads((here / MANIFEST).read_bytes())
        _check(here, sums, known.get("seen", {}), address)
        return here

    def require(self, name: str) -> None:
        """Check that the files of a directory exist. `get_directory` also checks their content.

        Raises:
            CheckpointError: the manifest or a file is missing. The message has the file.
        """
        name = self._name(name)
        known, there = self._manifest(name), self.store.sizes(name)
        out = tuple(f"{part}/" for part in known.get("dropped", ()))
        gone = sorted(file for file in known["files"] if f"{name}/{file}" not in there and not file.startswith(out))
        if gone:
            raise CheckpointError(f"{self.store.path(f'{name}/{gone[0]}')} is missing.", "Restore it, or name another.")

    def sums(self, name: str) -> dict[str, str]:
        """Return the sha256 of each file of a directory, by name. Raise CheckpointError if it does not exist."""
        return dict(self._manifest(self._name(name))["files"])

    def dropped(self, name: str) -> list[str]:
        """Return the folders that were removed from a stored directory."""
        return self._manifest(self._name(name)).get("dropped", [])

    def drop(self, name: str, part: str, in_use: Callable[[], bool]) -> bool:
        """Remove a folder from a stored directory, and return whether its files are deleted.

        Later calls of `get_directory` return the directory without the folder. The files are deleted at once, unless
        `in_use` returns True because an earlier reader uses them. Then the next call of `drop` deletes them.

        Raises:
            CheckpointError: the directory does not exist.
        """
        name = self._name(name)
        known = self._manifest(name)
        if part not in known.get("dropped", ()):
            for key in known.keys() & {"files", "seen"}:
                known[key] = {file: about for file, about in known[key].items() if not file.startswith(f"{part}/")}
            known["dropped"] = [*known.get("dropped", ()), part]
            self.store.put(f"{name}/{MANIFEST}", _written(known))
        if in_use():
            return False
        folder = f"{name}/{part}"
        for file in self.store.sizes(folder):
            self.store.delete(file)
        for below in ("/*/*", "/*", ""):
            self.store.prune(folder + below)
        return True

    def _manifest(self, name: str) -> dict[str, Any]:
        try:
            known = json.loads(self.store.get(f"{name}/{MANIFEST}"))
            for file in known["files"]:
                inside(file)
            return known
        except FileNotFoundError as error:
            at = self.store.path(f"{name}/{MANIFEST}")
            hint = "It was never whole, or was removed since: restore it, or name another."
            raise CheckpointError(f"{at} is missing.", hint) from error

    def _name(self, name: str) -> str:
        root = self.store.path("")
        if not name.startswith("/") and "://" not in name:
            return name
        if not name.startswith(root):
            raise CheckpointError(f"{name} is not below {root}.", "Give the name that put_directory returned.")
        return name.removeprefix(root)

    def _fetch(self, name: str, sums: Mapping[str, str], target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
        sizes, copy = self.store.sizes(name), open_store(part)
        try:
            for file, expected in sums.items():
                at = f"{name}/{file}"
                if at not in sizes:
                    raise _wrong(f"{self.store.path(at)} is missing.")
                if _copy(self.store, at, sizes[at], copy, file) != expected:
                    raise _wrong(f"{self.store.path(at)} differs from the stored file (sha256).")
            (part / MANIFEST).write_bytes(_manifest(sums, part))
            try:
                part.rename(target)
            except OSError:  # another process fetched it first
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _copy(source: ObjectStore, name: str, size: int, target: ObjectStore, to: str) -> str:
    """Copy a file in one pass, and return its sha256."""
    digest = hashlib.sha256()
    target.delete(to)
    with target.create(to, size) as sink:
        for part in source.chunks(name, size):
            sink.write(part)
            digest.update(part)
    return digest.hexdigest()


def _manifest(sums: Mapping[str, str], folder: Path | None) -> bytes:
    content: dict[str, Any] = {"files": dict(sums)}
    if folder is not None:
        content["seen"] = {file: _seen(folder / file) for file in sums}
    return _written(content)


def _written(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode()


def _check(folder: Path, sums: Mapping[str, str], seen: Mapping[str, Any], address: str) -> None:
    for file, expected in sums.items():
        path = folder / file
        if not path.is_file():
            raise _wrong(f"{address}/{file} is missing.")
        if seen.get(file) == _seen(path):
            continue
        with path.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != expected:
                raise _wrong(f"{address}/{file} differs from the stored file (sha256).")


def _seen(path: Path) -> list[int]:
    """Return the size of a file in bytes and its modification time in nanoseconds. They show if the file changed."""
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]


def _wrong(problem: str) -> CheckpointError:
    return CheckpointError(problem, "Store the directory again.")
