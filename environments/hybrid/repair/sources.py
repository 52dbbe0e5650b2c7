"""Read the repositories that tasks are made from: installed packages, folders and source archives."""

import hashlib
import os
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path, PurePosixPath

from schemas.failure import FlywheelError, UsageError

MAX_FILES, MAX_BYTES = 10_000, 64 << 20
"""Most files and bytes of a repository."""
MAX_FILE = 1 << 20
"""Bytes of the largest file that is read; larger files are left out."""
_NO_SOURCE = ("__pycache__", "build", "dist", "node_modules", "site-packages", "venv")
_NO_PACKAGE = ("benchmarks", "doc", "docs", "examples", "scripts", "tools")
_NO_MODULE = ("setup.py", "noxfile.py", "tasks.py", "fabfile.py", "conftest.py", "manage.py")
_SETTINGS = frozenset({
    "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml",
    "sitecustomize.py", "usercustomize.py",
})  # fmt: skip
"""Files that configure pytest or Python."""
_CODE = (".so", ".pyd", ".dll", ".dylib")


@dataclass(frozen=True, slots=True)
class Repository:
    """The files of a package."""

    name: str
    """Last part of the task's name."""
    origin: str
    """Package and version, or the path of the source."""
    files: Mapping[str, bytes]
    """Contents by path, without tests."""
    modules: tuple[str, ...]
    """Dotted names of all modules."""
    roots: tuple[str, ...] = ("",)
    """Folders that are import roots: the repository itself, or `src`."""
    tests: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Test files by path; a policy does not see them."""

    @property
    def tops(self) -> frozenset[str]:
        """Returns the names of packages and modules that `import` finds at the top."""
        return frozenset(name.partition(".")[0] for name in self.modules)

    @property
    def digest(self) -> str:
        """Returns a hash of all files."""
        total = hashlib.sha256()
        for path, content in sorted({**self.files, **self.tests}.items()):
            total.update(f"{path}\0{len(content)}\0".encode() + content)
        return total.hexdigest()


def is_test(path: str) -> bool:
    """Checks whether pytest reads a file as a test or as a part of its tests."""
    *above, name = PurePosixPath(path).parts
    return (
        any(part in ("test", "tests", "testing") for part in above)
        or name == "conftest.py"
        or (name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")))
    )


def protected(path: str) -> bool:
    """Checks whether a file is never taken from a policy: a test, or a file that configures pytest or Python."""
    name = PurePosixPath(path).name
    return is_test(path) or name in _SETTINGS or name.endswith(".pth")


def installed(name: str, key: str) -> Repository:
    """Reads an installed package.

    Args:
        name: name of the distribution, such as `packaging`.
        key: config key of the name.

    Raises:
        UsageError: the package is not installed, has compiled modules, no modules or too many files.
    """
    try:
        found = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        raise UsageError(
            f"`{key}`: the package {name} is not installed.", f"Run `pip install {name}`, or take it out of the list."
        ) from None
    listed = [one for one in found.files or () if ".." not in one.parts and one.parts[0] != "__pycache__"]
    if binary := next((one for one in listed if one.name.endswith(_CODE)), None):
        raise UsageError(f"`{key}`: {name} is no pure Python package: it has {binary}.", "Name another package.")
    files = dict[str, bytes]()
    for one in listed:
        path = str(one)
        if path.endswith((".pyc", ".pth")) or ".dist-info/" in path or is_test(path):
            continue
        place = Path(str(one.locate()))
        if place.is_file() and place.stat().st_size <= MAX_FILE:
            files[path] = place.read_bytes()
    return _checked(Repository(name, f"{name} {found.version}", files, _modules(files, "")), key, name)


def at(path: Path, key: str) -> Repository:
    """Reads a folder or a source archive (`.tar.gz`, `.tgz`, `.zip`).

    Args:
        path: the folder or the archive.
        key: config key of the path.

    Raises:
        UsageError: there is no such folder or archive, it has no Python package, or too many files.
    """
    if path.is_dir():
        files = dict(_walked(path))
    elif path.is_file() and path.name.endswith((".tar.gz", ".tgz", ".zip")):
        files = _unpacked(path, key)
    else:
        raise UsageError(
            f"`{key}`: {path} is no folder and no archive.", "Name a folder, a `.tar.gz` or a `.zip` file."
        )
    return of_files(files, path.name.removesuffix(".tar.gz").removesuffix(".tgz").removesuffix(".zip"), str(path), key)


def of_files(files: Mapping[str, bytes], name: str, origin: str, key: str) -> Repository:
    """Finds the packages and tests among the files of a project; raises UsageError if there are none or too many."""
    roots = ("src",) if any(path.startswith("src/") and path.endswith(".py") for path in files) else ("",)
    tests = {path: content for path, content in files.items() if is_test(path)}
    rest = {path: content for path, content in files.items() if path not in tests}
    found = Repository(name, origin, rest, _modules(rest, *roots), roots, tests)
    return _checked(found, key, origin)


def _checked(found: Repository, key: str, what: str) -> Repository:
    size = sum(map(len, found.files.values()))
    if not found.modules:
        raise UsageError(f"`{key}`: {what} has no Python package or module.", "Name a folder with a package.")
    if len(found.files) > MAX_FILES or size > MAX_BYTES:
        raise UsageError(
            f"`{key}`: {what} has {len(found.files)} files with {size >> 20} MiB; at most {MAX_FILES} files with "
            f"{MAX_BYTES >> 20} MiB are possible.",
            "Name a smaller package.",
        )
    return found


def _modules(files: Iterable[str], root: str) -> tuple[str, ...]:
    """Lists the modules below an import root, without scripts, documentation and `__main__`."""
    found, every = list[str](), set(files)
    for path in sorted(every):
        if not path.endswith(".py") or not path.startswith(f"{root}/" if root else ""):
            continue
        place = PurePosixPath(path).relative_to(root).with_suffix("")
        top, last = place.parts[0], place.parts[-1]
        names = place.parts[:-1] if last == "__init__" else place.parts
        folders = [one for one in place.parents if one.name]
        usual = top not in _NO_PACKAGE and last != "__main__" and (folders or f"{top}.py" not in _NO_MODULE)
        inside = {str(PurePosixPath(root) / one / "__init__.py") for one in folders} <= every
        if names and usual and inside and all(part.isidentifier() for part in names):
            found.append(".".join(names))
    return tuple(found)


def _walked(folder: Path) -> Iterator[tuple[str, bytes]]:
    for above, folders, names in os.walk(folder):
        here = Path(above)
        folders[:] = sorted(
            one
            for one in folders
            if not one.startswith(".") and one not in _NO_SOURCE and not (here / one / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            place = here / name
            if name.endswith((".pyc", *_CODE)) or place.is_symlink() or not place.is_file():
                continue
            if place.stat().st_size <= MAX_FILE:
                yield place.relative_to(folder).as_posix(), place.read_bytes()


def _unpacked(path: Path, key: str) -> dict[str, bytes]:
    """Reads an archive without writing its files; its only folder is left out of the paths."""
    files = dict[str, bytes]()
    try:
        if path.name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                for one in archive.infolist():
                    if not one.is_dir() and one.file_size <= MAX_FILE:
                        files[one.filename] = archive.read(one)
        else:
            with tarfile.open(path) as archive:
                for one in archive:
                    if one.isfile() and one.size <= MAX_FILE and (opened := archive.extractfile(one)):
                        files[one.name] = opened.read()
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise FlywheelError(f"`{key}`: {path} cannot be read: {error}.", "Download the archive again.") from error
    tops = {name.partition("/")[0] for name in files}
    if len(tops) == 1 and all("/" in name for name in files):
        files = {name.partition("/")[2]: content for name, content in files.items()}
    return {
        name: content
        for name, content in files.items()
        if not any(part.startswith(".") or part in _NO_SOURCE for part in PurePosixPath(name).parts)
    }
