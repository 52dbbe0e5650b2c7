"""Run build programs, one process in a folder at a time; each ends with this process and reports the reason of a
failure.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from common.process import theirs
from common.supervisor import supervised
from schemas.failure import FlywheelError

T = TypeVar("T")
FULL_BELOW = 16 << 20
"""Free bytes of a disk below which a full disk is reported as the reason of a program's failure, since not every
program prints it."""


@contextlib.contextmanager
def alone(folder: Path, what: str) -> Generator[None]:
    """Keeps other processes from building in a folder, by a lock on a file next to it that ends with this process.

    Args:
        folder: the folder to build in; its parent exists.
        what: the thing that is built, for the error.

    Raises:
        FlywheelError: another process builds in the folder; the message names it.
        OSError: the lock file cannot be created next to the folder.
    """
    from filelock import FileLock, Timeout  # every config imports this module, and few commands build

    folder = folder.resolve()  # resolves links
    file = folder.parent / f".{folder.name}.lock"
    held: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    try:
        held = FileLock(file).acquire(blocking=False)
        file.write_text(str(os.getpid()))
    except PermissionError:  # the parent is not writable, so no lock file can be made
        pass
    except Timeout as error:
        problem = f"{what} is being added to {folder} by another command (process {file.read_text()})."
        raise FlywheelError(problem, "Wait for it, or end it; then give this command again.") from error
    with held:
        yield


def record_in(file: Path, kind: type[T]) -> T | None:
    """Reads the record of a build, whose fields are those of a class; None if the build was not completed here."""
    try:
        return kind(**json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def asked(command: Sequence[str], limit_s: float) -> str:
    """Returns the output of a short-lived program; a program that is not done in time ends with its descendants.

    Raises:
        OSError: the program cannot be started.
        subprocess.SubprocessError: the program took longer, or failed.
    """
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True, env=theirs(),
    ) as process:  # fmt: skip
        try:
            output, error = process.communicate(timeout=limit_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, error)
    return output


def asked_json(words: Sequence[str], limit_s: float, failed: str) -> Any:
    """Runs a program, and returns the JSON in the last line that it prints.

    Args:
        words: the program and its arguments.
        limit_s: time limit in seconds.
        failed: beginning of the message of a failure.

    Raises:
        FlywheelError: the program fails, or its last line is no JSON.
    """
    try:
        return json.loads(asked(words, limit_s).strip().splitlines()[-1])
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or "").strip().splitlines()[-1:] or ["no output"]
        raise FlywheelError(f"{failed}: {reason[0][:300]}") from error
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise FlywheelError(f"{failed}: {error}"[:300]) from error


def run(
    command: Sequence[str],
    folder: Path,
    limit_s: float,
    on_line: Callable[[str], None] = lambda line: None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Runs a program to its end.

    Args:
        command: path of the program, and its arguments.
        folder: its working directory.
        limit_s: time limit in seconds.
        heard: is called with each line that it prints.
        variables: its environment variables; this process's if not given.

    Raises:
        FlywheelError: the program took longer, or failed; the message quotes its output, and names the disk if it is
    full.
    """
    name = " ".join([Path(command[0]).name, *command[1:2]])
    process = subprocess.Popen(
        [*supervised(), *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        env=theirs() if variables is None else dict(variables),
    )  # fmt: skip
    late = threading.Event()

    def give_up() -> None:
        late.set()
        process.terminate()

    timer = threading.Timer(limit_s, give_up)
    timer.start()
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                lines.append(line.strip())
                on_line(line.strip())
        process.wait()
    finally:
        timer.cancel()
        process.terminate()
        process.wait()
    if late.is_set():
        raise FlywheelError(f"{name} took longer than {limit_s:.0f} s.")
    if process.returncode:
        raise _failure(name, folder, lines)


def _failure(name: str, folder: Path, lines: Sequence[str]) -> FlywheelError:
    message = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    after = lines[lines.index(message) + 1 : lines.index(message) + 2] if message else []
    problem = f"`{name}` failed: {' '.join([message, *after])[:300]}"
    if full := _full(folder, lines):
        return FlywheelError(f"{full}: {problem}", "Free some space, and give the same command again.")
    return FlywheelError(problem)


def _full(folder: Path, lines: Sequence[str]) -> str:
    """Describes a lack of disk space in the failed program's folder or the temporary one; empty if there is none.

    The program's temporary files are already deleted, so some space is free again.
    """
    with contextlib.suppress(OSError):  # the folder or the temporary folder may be gone
        for place in (folder, Path(tempfile.gettempdir())):
            if (free := shutil.disk_usage(place).free) < FULL_BELOW:
                return f"The disk is full, with {free / 1e6:.1f} MB left in {place}"
    return f"The disk of {folder} is full" if any("No space left" in line for line in lines) else ""
