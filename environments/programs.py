"""Programs that build something here: each ends with this process, and says why where it fails."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from environments import watchdog
from schemas.children import theirs
from schemas.failure import FlywheelError

FULL_BELOW = 16 << 20
"""Bytes on a disk; where no more are left after a program failed, that is taken for why: not every program says it."""


def asked(command: Sequence[str], limit_s: float) -> str:
    """What a program that ends soon prints; where it does not, what it started is ended with it.

    Raises:
        OSError: it cannot be started.
        subprocess.SubprocessError: it took longer, or failed.
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


def run(
    command: Sequence[str],
    folder: Path,
    limit_s: float,
    heard: Callable[[str], None] = lambda line: None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Runs a program to its end.

    Args:
        command: the program's path, and its arguments.
        folder: where it runs.
        limit_s: how long it may take.
        heard: gets each line that it prints.
        variables: its environment; this process's if not given.

    Raises:
        FlywheelError: it took longer, or failed; with what it said of that, and the disk if that is full.
    """
    tied = [*watchdog.tied(), *command]
    name = " ".join([Path(command[0]).name, *command[1:2]])
    process = subprocess.Popen(
        tied, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True, env=theirs() if variables is None else dict(variables),
    )  # fmt: skip
    late = threading.Event()

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def give_up() -> None:
        late.set()
        end()

    timer = threading.Timer(limit_s, give_up)
    timer.start()
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                lines.append(line.strip())
                heard(line.strip())
        process.wait()
    finally:
        timer.cancel()
        end()
        process.wait()
    if late.is_set():
        raise FlywheelError(f"{name} took longer than {limit_s:.0f} s.")
    if process.returncode:
        raise _failure(name, folder, lines)


def _failure(name: str, folder: Path, lines: Sequence[str]) -> FlywheelError:
    """Why a program failed, by what it printed."""
    message = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    after = lines[lines.index(message) + 1 : lines.index(message) + 2] if message else []
    problem = f"`{name}` failed: {' '.join([message, *after])[:300]}"
    if full := _full(folder, lines):
        return FlywheelError(f"{full}: {problem}", "Free some space, and give the same command again.")
    return FlywheelError(problem)


def _full(folder: Path, lines: Sequence[str]) -> str:
    """Says that a program that failed had too little space, in its folder or for what is temporary; else nothing.

    What was temporary is gone by now, so that some space is there again.
    """
    with contextlib.suppress(OSError):  # a folder that is gone, or no place at all for what is temporary
        for place in (folder, Path(tempfile.gettempdir())):
            if (free := shutil.disk_usage(place).free) < FULL_BELOW:
                return f"The disk is full, with {free / 1e6:.1f} MB left in {place}"
    return f"The disk of {folder} is full" if any("No space left" in line for line in lines) else ""
