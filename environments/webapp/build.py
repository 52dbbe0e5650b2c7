"""Build web applications from the user's checkout: `npm ci`, then `vite build`, in a copy.

Only the result of the build is kept, since the required modules take a hundred megabytes for each application. This
project's server implements the applications' contract, so no node process runs with the sandboxes. A complete build is
moved into place, so an interrupted build leaves nothing. An existing build of the same source is not repeated.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from environments.programs import alone, record_in, run
from schemas.failure import FlywheelError, UsageError

LIMIT_S = 900.0
"""Time limit of one program of a build, in seconds."""
SUFFIX, RECORD, BUILDING = "_mock", "built.json", ".building-"
SKIPPED = ("node_modules", "dist", ".git", "mobilegym-data")
"""Folders of a source that its build does not need."""
LEFT_OUT = shutil.ignore_patterns(*SKIPPED, ".mock-*")
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--replace-registry-host=always")
"""Command that installs the versions of the application's lock file from npm's registry, without running scripts of
packages."""
VITE = ("node", "node_modules/vite/bin/vite.js", "build")


@dataclass(frozen=True, slots=True)
class Built:
    """A built application."""

    name: str
    source: str
    """SHA-256 of the source files."""
    seconds: float
    bytes: int
    node: str
    """Version of Node.js; empty if the build needs none."""


def sources(snapshot: Path) -> Mapping[str, Path]:
    """Returns the applications of a snapshot by this project's name; raises UsageError if there are none."""
    found = {
        path.name.removesuffix(SUFFIX).replace("_", "-").lower(): path
        for path in sorted((snapshot / "websites").glob(f"*{SUFFIX}"))
        if (path / "package.json").is_file()
    }
    if not found:
        raise UsageError(
            f"`--from`: {snapshot} is not a checkout of CUA-Gym-Hub: it has no websites/*{SUFFIX}.",
            "Clone it, and name that folder.",
        )
    return found


def build(snapshot: Path, to: Path, names: Sequence[str], log: Callable[[str], None]) -> list[Built]:
    """Builds applications in turn.

    Args:
        snapshot: the checkout; it is only read.
        to: the parent of each application's folder, which has its name.
        names: the applications.
        log: is called with a line for each.

    Raises:
        UsageError: the snapshot lacks an application.
        FlywheelError: npm is missing, another process builds in the folder, or some builds fail; the other builds are
            complete, and the message names each failed application with the reason.
    """
    there = sources(snapshot)
    if unknown := sorted(set(names) - there.keys()):
        raise UsageError(f"`--apps`: {snapshot} has no {unknown[0]}.", f"It has {', '.join(there)}.")
    require_node()
    to.mkdir(parents=True, exist_ok=True)
    with alone(to, "cua-gym-hub"):
        return _all(snapshot, {name: there[name] for name in names}, to, log)


def record_of(folder: Path) -> Built | None:
    """Reads the record of a built application; None if it was not built on this machine."""
    return record_in(folder / RECORD, Built)


def _all(snapshot: Path, wanted: Mapping[str, Path], to: Path, log: Callable[[str], None]) -> list[Built]:
    for leftover in to.glob(f"{BUILDING}*"):
        shutil.rmtree(leftover)
    made, failed = list[Built](), list[str]()
    for number, (name, source) in enumerate(wanted.items(), 1):
        log(f"{number}/{len(wanted)} {name}")
        try:
            made.append(_built(snapshot, source, to, name, log))
        except FlywheelError as error:
            log(f"  {error.problem}")
            failed.append(f"{name}: {error.problem}")
    if failed:
        raise FlywheelError(
            f"{len(failed)} of {len(wanted)} do not build: {'; '.join(failed)}", "The others are there."
        )
    return made


def _built(snapshot: Path, source: Path, to: Path, name: str, log: Callable[[str], None]) -> Built:
    def arranged(app: Path) -> Path:
        for notice in ("LICENSE", "NOTICE"):
            if (snapshot / notice).is_file():
                shutil.copy(snapshot / notice, app / "dist" / notice)
        return app / "dist"

    return build_one(name, source, to / name, arranged, log)


def build_one(
    name: str, source: Path, target: Path, arranged: Callable[[Path], Path], log: Callable[[str], None]
) -> Built:
    """Builds an application, unless its folder has the build of this source.

    Args:
        name: its name in the record.
        source: its source files; they are only read.
        target: folder of the build, which the caller has locked (`alone`).
        arranged: gets the folder in which the application was built, with its `dist`; returns the folder to keep.
        log: is called with a line for each step.

    Raises:
        FlywheelError: npm is missing, or the build fails.
    """
    require_node()

    def made(place: Path) -> Path:
        shutil.copytree(source, place / "app", ignore=LEFT_OUT)
        for command in (INSTALL, VITE):
            _run(command, place / "app")
        if not (place / "app" / "dist" / "index.html").is_file():
            raise FlywheelError("its build makes no dist/index.html.")
        return arranged(place / "app")

    def node() -> str:
        return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()

    return built_once(name, source, target, made, log, node)


def built_once(
    name: str,
    source: Path,
    target: Path,
    made: Callable[[Path], Path],
    log: Callable[[str], None],
    node: Callable[[], str] = lambda: "",
) -> Built:
    """Makes a build and moves it into place, unless its folder has the build of this source.

    Args:
        name: its name in the record.
        source: its source files; they are only read.
        target: folder of the build, which the caller has locked (`alone`).
        made: gets a temporary folder; returns the folder in it to keep.
        log: is called with a line for each step.
        node: returns the version of Node.js, for the record.
    """
    digest, known = _digest(source), record_of(target)
    if known is not None and known.source == digest:
        log("  is there already")
        return known
    started = time.monotonic()
    with _workplace(target.parent / f"{BUILDING}{name}") as place:
        kept = made(place)
        size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
        built = Built(name, digest, round(time.monotonic() - started, 1), size, node())
        (kept / RECORD).write_text(json.dumps(asdict(built)), "utf-8")
        if target.exists():
            target.rename(place / "old")
        kept.rename(target)
    log(f"  {built.seconds:.0f} s, {built.bytes / 1000:.0f} KB")
    return built


def require_node() -> None:
    """Raises FlywheelError if npm or node is missing."""
    for program in ("npm", "node"):
        if shutil.which(program) is None:
            raise FlywheelError(f"There is no {program}.", "Install Node.js 20 or later, with npm.")


@contextlib.contextmanager
def _workplace(place: Path) -> Iterator[Path]:
    """A temporary folder that is always deleted afterwards."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(command: Sequence[str], folder: Path) -> None:
    program = shutil.which(command[0])
    assert program is not None
    run((program, *command[1:]), folder, LIMIT_S)


def _digest(source: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        inside = path.relative_to(source)
        if not set(SKIPPED) & set(inside.parts):
            found.update(f"{inside}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0".encode())
    return found.hexdigest()
