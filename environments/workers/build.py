"""Build the Python environment of a worker: a virtual environment with exactly the packages of a lock file.

So a foreign package's requirements never conflict with this project's. A complete folder has a record; an interrupted
build has none and is repeated. One process at a time builds in a folder.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from common.text import counted
from environments.programs import alone, asked, record_in, run
from schemas.failure import FULL, FlywheelError, UsageError

LIMIT_S = 1800.0
"""Time limit of one program of a build, in seconds."""
RECORD, BEGUN = "flywheel.json", "flywheel-begun"
LOCKS = Path(__file__).with_name("locks")
Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Module:
    """A module that can be added."""

    name: str
    package: str
    """Name of the module's distribution."""
    first: Version
    """Versions of Python for the lock file."""
    last: Version

    @property
    def lock(self) -> Path:
        """Path of the lock file, with names and versions of packages."""
        return LOCKS / f"{self.name}.txt"


MODULES: Mapping[str, Module] = {
    one.name: one
    for one in (
        Module("browsergym", "browsergym-core", (3, 11), (3, 12)),
        Module("gymnasium", "gymnasium", (3, 11), (3, 13)),
        Module("cube", "cube-standard", (3, 12), (3, 12)),
    )
}
MOBILEGYM = Module("mobilegym", "playwright", (3, 11), (3, 13))
"""Requirements of MobileGym's `bench_env`, which is in the user's checkout; an environment of its own uses them."""
ANDROIDWORLD = Module("androidworld", "android-env", (3, 11), (3, 12))
"""Requirements of AndroidWorld, which is in the user's checkout; an environment of its own uses them."""


@dataclass(frozen=True, slots=True)
class Added:
    """A virtual environment that this machine built."""

    name: str
    python: str
    """Version of the environment's Python."""
    lock: str
    """SHA-256 of the lock file."""
    packages: int
    seconds: float


def python_in(folder: Path) -> Path:
    """Returns the Python of a virtual environment."""
    return folder / "bin" / "python"


def record_of(folder: Path) -> Added | None:
    """Reads the record of a virtual environment; None if it was not built, or its build was interrupted."""
    return record_in(folder / RECORD, Added)


def add(module: Module, to: Path, python: str | None, log: Callable[[str], None]) -> Added:
    """Builds the virtual environment of a module, unless it exists.

    Args:
        module: the module to add.
        to: folder of the environment.
        python: the Python for the build; searched for if not given.
        log: is called with a line for each part of the build.

    Raises:
        UsageError: the folder cannot be made or has other content, or the named Python does not fit the module.
        FlywheelError: another process builds in the folder, there is no suitable Python, or a package cannot be
    installed.
    """
    to, digest = to.resolve(), hashlib.sha256(module.lock.read_bytes()).hexdigest()
    if (known := _whole(to, digest)) is None:  # without a lock, as the disk may be read-only
        with _held(to, module.name):
            known = _whole(to, digest)  # another process may have built it before the lock was free
            if known is None:
                return _built(module, to, digest, python, log)
    log(f"{module.name} is there already")
    return known


def _whole(to: Path, digest: str) -> Added | None:
    """Reads the record of a virtual environment of this lock file; None if there is none."""
    known = record_of(to)
    return known if known is not None and known.lock == digest and python_in(to).exists() else None


@contextlib.contextmanager
def _held(to: Path, name: str) -> Generator[None]:
    with contextlib.ExitStack() as held:
        try:
            to.mkdir(parents=True, exist_ok=True)
            held.enter_context(alone(to, name))
        except OSError as error:
            if error.errno in FULL:
                raise
            raise UsageError(
                f"`--dir`: {to} cannot be its folder: {error.strerror}.", "Name another folder."
            ) from error
        yield


def _built(module: Module, to: Path, digest: str, python: str | None, log: Callable[[str], None]) -> Added:
    if any(to.iterdir()) and not any((to / name).exists() for name in (RECORD, BEGUN)):
        raise UsageError(f"`--dir`: {to} is not empty, and was not built here.", "Name another folder.")
    found, version = find_python(module, python)
    started = time.monotonic()
    packages = [line for line in module.lock.read_text("utf-8").splitlines() if line.strip()]
    log(f"a virtual environment of Python {version} in {to}")
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(exist_ok=True)  # a mount point cannot be removed, only emptied
    (to / BEGUN).touch()
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run((str(found), "-m", "venv", str(to)), to, LIMIT_S, variables=own)
    log(counted(len(packages), "package"))
    pip = (str(python_in(to)), "-m", "pip", "install", "--no-deps", "--no-input", "--disable-pip-version-check")
    run((*pip, "--progress-bar", "off", "-r", str(module.lock)), to, LIMIT_S, _counting(packages, log), own)
    added = Added(module.name, version, digest, len(packages), round(time.monotonic() - started, 1))
    (to / RECORD).write_text(json.dumps(asdict(added)), "utf-8")
    (to / BEGUN).unlink()
    log(f"{module.name} in {added.seconds:.0f} s")
    return added


def find_python(module: Module, named: str | None = None) -> tuple[Path, str]:
    """Finds a Python for a module, and its version; raises UsageError if the named Python is unsuitable, and
    FlywheelError if there is none."""
    first, last = (".".join(map(str, one)) for one in (module.first, module.last))
    wanted = f"Python {first}" if first == last else f"a Python from {first} to {last}"
    if named is not None:
        version = _version(named)
        if version is None or not module.first <= version[:2] <= module.last:
            is_ = f"is Python {_version_text(version)}" if version else "does not run"
            raise UsageError(f"`--python`: {named} {is_}, and {module.name} needs {wanted}.", "Name another.")
        return Path(shutil.which(named) or named).absolute(), _version_text(version)
    for candidate in _candidates(module):
        version = _version(candidate)
        if version is not None and module.first <= version[:2] <= module.last:
            return Path(candidate), _version_text(version)
    raise FlywheelError(f"{module.name} needs {wanted}, and none was found.", "Install one, or name it: --python PATH.")


def _candidates(module: Module) -> Iterator[str]:
    yield sys.executable
    for minor in range(module.last[1], module.first[1] - 1, -1):
        if (found := shutil.which(f"python3.{minor}")) is not None:
            yield found
        kept = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
        yield from map(str, sorted(kept.glob(f"3.{minor}.*/bin/python")))


def _version(python: str) -> tuple[int, ...] | None:
    code = "import sys; print(*sys.version_info[:3])"
    try:
        return tuple(map(int, asked((python, "-I", "-c", code), 30).split()))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _version_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _counting(packages: list[str], log: Callable[[str], None]) -> Callable[[str], None]:
    count = 0

    def on_line(line: str) -> None:
        nonlocal count
        if line.startswith(("Collecting ", "Processing ")):
            count += 1
            log(f"  {count}/{len(packages)} {Path(line.split()[1]).name}")
        elif line.startswith("Installing "):
            log("  installing")

    return on_line
