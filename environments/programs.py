"""Programs that build something here: each ends with this process, and says why where it fails."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from environments import watchdog
from schemas.failure import FlywheelError


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
        FlywheelError: it took longer, or failed; with what it said of that.
    """
    tied = [*watchdog.tied(), *command]
    name = " ".join([Path(command[0]).name, *command[1:2]])
    process = subprocess.Popen(
        tied, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True, env=None if variables is None else dict(variables),
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
        message = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
        after = lines[lines.index(message) + 1 : lines.index(message) + 2] if message else []
        raise FlywheelError(f"`{name}` failed: {' '.join([message, *after])[:300]}")
