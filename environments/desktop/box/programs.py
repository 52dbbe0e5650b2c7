"""Run the processes of a desktop: its X server, its window manager, and opened or executed programs."""

import ctypes
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from environments.desktop.box.frames import descendants

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOCAL, ANY = 256, 65535
"""Families of addresses in a file of X's cookies."""
START_S = 15.0
"""Seconds that the X server and the window manager may take to start."""
MOST_OUTPUT = 1 << 20
"""Bytes of a command's output that are returned."""


class NotStarted(Exception):
    """A program did not start; the message has its name and its output."""


def adopt() -> None:
    """Makes this process the parent of orphaned descendants, so that it can find every process that was started
    here."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_all() -> None:
    """Ends all processes started here, and their descendants."""
    while left := descendants(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def start_x(width: int, height: int, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """An X server that draws into a file of `folder`, and the name of its display; raises NotStarted."""
    to_read, to_write = os.pipe()
    folder.mkdir(parents=True, exist_ok=True)
    cookie = os.urandom(16)
    _allow(cookie)
    screen = ("-screen", "0", f"{width}x{height}x24", "-fbdir", str(folder), "-dpi", "96")
    log = (folder / "log").open("wb")
    try:
        server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(to_write), *screen, "-nolisten", "tcp", "-noreset", "-s", "0",
             "-auth", os.environ["XAUTHORITY"]],
            pass_fds=(to_write,), stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_with_parent,
        )  # fmt: skip
    except OSError as error:
        raise NotStarted(f"Xvfb: {error}") from error
    finally:
        os.close(to_write)
        log.close()
    number = b""
    try:
        while not number.endswith(b"\n"):  # to the end of its line: a pipe closed before ends the server
            if not (more := os.read(to_read, 16)):
                raise NotStarted(f"Xvfb: {(folder / 'log').read_text(errors='replace')[-400:]}")
            number += more
    finally:
        os.close(to_read)
    _allow(cookie, number.strip())
    return server, f":{number.decode().strip()}"


def _allow(cookie: bytes, display: bytes = b"") -> None:
    """Writes the access file that the server and its clients read (Xau, X.Org): it admits each client with the cookie,
    by this host's name or any. Some clients need the display's number, which is known only once it runs."""
    entries = [(LOCAL, os.uname().nodename.encode(), display), (ANY, b"", b"")]
    with open(os.environ["XAUTHORITY"], "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        for family, address, number in entries:
            file.write(struct.pack(">H", family))
            for part in (address, number, b"MIT-MAGIC-COOKIE-1", cookie):
                file.write(struct.pack(">H", len(part)) + part)


def _with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def opened(command: Sequence[str] | str, cwd: Path) -> int:
    """Starts a program in the background and returns its process id. A text is a line for the shell. Raises OSError."""
    process = subprocess.Popen(
        _words(command), cwd=cwd, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


def executed(command: Sequence[str] | str, cwd: Path, timeout_s: float) -> dict[str, Any]:
    """Runs a command to its end, without waiting for its background processes.

    Returns:
        `stdout`, `stderr` (text) and `returncode`; or `timed_out`, and its process group is ended.

    Raises:
        OSError: it could not be started.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        process = subprocess.Popen(
            _words(command), cwd=cwd, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=error,
        )  # fmt: skip
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return {"timed_out": True}
        return {"stdout": _text(output), "stderr": _text(error), "returncode": process.returncode}


def _words(command: Sequence[str] | str) -> list[str]:
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)


def _text(written: IO[bytes]) -> str:
    written.seek(0)
    return written.read(MOST_OUTPUT).decode(errors="replace")
