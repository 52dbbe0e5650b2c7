"""Run a repository's code in a fresh sandbox: no process of a policy runs there, and nothing in it has an answer.

The host writes the repository to `/work`, and a program of `inside` with its request to `/tmp`. Installed Python
packages are hidden, so that neither a policy nor a repository can read or import an unchanged copy of itself.
"""

import json
import re
import shlex
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from environments.hybrid.bubblewrap import WORK, Mounts, SandboxLimits, owner
from environments.hybrid.files import Files
from environments.hybrid.terminal import TerminalSession
from schemas.failure import ActionFailure

MAX_ANSWER = 32 << 20
"""Most bytes of an answer."""
LIBRARIES = "/opt/libraries"
"""Folder of pytest and of the repositories' dependencies in a sandbox."""
_INSIDE = Path(__file__).parent / "inside"
_APART = "flywheel_apart.py"
"""Module that the programs of `inside` import."""
_FOLDERS = (
    "/usr",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local",
    "/usr/local/lib",
    "/usr/share",
)
"""Folders of which only some subfolders stay visible."""
_KEPT = re.compile(
    r"s?bin|lib(32|64|exec)?|local|share|.*-linux-.*|python3\.\d+|git-core|coreutils|gcc.*|locale|perl.*|terminfo|zoneinfo"
)
"""Subfolders with programs, shared libraries, the standard library, languages and time zones."""
_BUNDLED = ("/usr/lib*/python3.*/*-packages", "/usr/local/lib*/python3.*/*-packages")
_BUNDLED += ("/usr/lib*/python3.*/ensurepip", "/usr/local/lib*/python3.*/ensurepip")


@cache
def hidden() -> Mounts:
    """Hides all folders of `/usr` that may have Python packages, installed or bundled with other software.

    Programs, shared libraries and Python's standard library stay.
    """
    inner = (Path(place) for folder in _FOLDERS if Path(folder).is_dir() for place in sorted(Path(folder).iterdir()))
    found = [one for one in inner if not _KEPT.fullmatch(one.name)]
    found += [Path(place) for pattern in _BUNDLED for place in sorted(glob(pattern))]
    return Mounts(hidden=tuple(str(one) for one in found if one.is_dir() and one.resolve() == one))


@dataclass(frozen=True, slots=True)
class Settings:
    """How a repository's code runs."""

    mounts: Mounts
    """Folders of pytest and of the dependencies."""
    python: str = "python3"
    """The interpreter's path in the sandbox."""
    tests_s: float = 10.0
    """Time limit of the tests in seconds."""


class NoResult(Exception):
    """Raised if the code under test ends the process, or takes too long; the message has the reason."""


class Runner:
    """A fresh sandbox with a repository; `opened` starts it.

    Args:
        terminal: the sandbox's shell.
        python: the interpreter's path in the sandbox.
    """

    def __init__(self, terminal: TerminalSession, python: str) -> None:
        self._terminal, self._python = terminal, python
        self._work, self._temporary = (Files(disk, owner()) for disk in terminal.bubblewrap.disks[:2])

    def write(self, files: Mapping[str, bytes]) -> None:
        """Writes files of the repository."""
        for path, content in files.items():
            self._work.write(path, content)

    def stamps(self, paths: Iterable[str]) -> dict[str, tuple[int, int] | None]:
        """Returns the inode and the time of change of files, which no process can set back."""
        return {path: self._work.stamp(path) for path in paths}

    async def ask(self, program: str, request: Mapping[str, Any], hash_seed: int = 1) -> Any:
        """Runs a program of `inside` and returns its answer.

        Args:
            program: name of the program's file, without its suffix.
            request: what the program reads as JSON.
            hash_seed: seed of Python's hashes, which decide the order of sets.

        Raises:
            NoResult: the program ended without an answer.
            SandboxFailure: the sandbox was killed from outside.
        """
        for name, source in ((_APART, _APART), ("inside.py", f"{program}.py")):
            self._temporary.write(name, (_INSIDE / source).read_bytes())
        self._temporary.write("request.json", json.dumps(request).encode())
        self._temporary.write("answer.json", b"")
        asked = shlex.join(("env", f"PYTHONHASHSEED={hash_seed}", self._python, "-s", "-S", "/tmp/inside.py"))
        try:
            ran = await self._terminal.run(f"cd {WORK}; {asked} > /tmp/output 2>&1")
            text = self._temporary.read("answer.json", MAX_ANSWER)
        except (ActionFailure, OSError, ValueError) as error:
            raise NoResult(str(error)) from error
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NoResult(f"the code ended its process: {ran.note or self._last_line() or ran.status}") from error

    def _last_line(self) -> str:
        with suppress(OSError, ValueError):
            lines = self._temporary.read("output").decode(errors="replace").strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""


@asynccontextmanager
async def opened(
    files: Mapping[str, bytes], limits: SandboxLimits, command_s: float, mounts: Mounts, python: str = "python3"
) -> AsyncIterator[Runner]:
    """Starts a sandbox with these files, and ends it afterwards.

    Args:
        files: contents by path.
        limits: limits of the sandbox.
        command_s: seconds that one request may take.
        mounts: further folders of the sandbox.
        python: the interpreter.

    Raises:
        SandboxFailure: no sandbox starts.
        NoResult: the files do not fit into the sandbox.
    """
    terminal = await TerminalSession.open(limits, command_s, mounts)
    try:
        runner = Runner(terminal, python)
        try:
            runner.write(files)
        except OSError as error:
            raise NoResult(f"the files cannot be written: {error}") from error
        yield runner
    finally:
        await terminal.close()
