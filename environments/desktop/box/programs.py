"""Run the processes of a desktop: its X server, its window manager, and opened or executed programs."""

import ctypes
import os
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

LOCAL, ANY = 256, 65535
"""Address families in a file of X's cookies."""
PR_SET_PDEATHSIG = 1
START_S = 15.0
"""Seconds that the X server and the window manager may take to start."""
MOST_OUTPUT = 1 << 20
"""Maximum bytes of a command's output that are returned."""


class NotStarted(Exception):
    """Raised if a program did not start; the message has its name and output."""


def start_x(width: int, height: int, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Starts an X server that draws into a file of `folder`; returns it and its display's name. Raises NotStarted."""
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
        while not number.endswith(b"\n"):  # reads the whole line, since closing the pipe earlier ends the server
            if not (more := os.read(to_read, 16)):
                raise NotStarted(f"Xvfb: {(folder / 'log').read_text(errors='replace')[-400:]}")
            number += more
    finally:
        os.close(to_read)
    _allow(cookie, number.strip())
    return server, f":{number.decode().strip()}"


def _allow(cookie: bytes, display: bytes = b"") -> None:
    """Writes the access file that the server and its clients read (Xau, X.Org): it admits clients with the cookie, by
    this host's name or any name. Some clients need the display's number, which is known only after the server's
    start."""
    entries = [(LOCAL, os.uname().nodename.encode(), display), (ANY, b"", b"")]
    with open(os.environ["XAUTHORITY"], "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        for family, address, number in entries:
            file.write(struct.pack(">H", family))
            for part in (address, number, b"MIT-MAGIC-COOKIE-1", cookie):
                file.write(struct.pack(">H", len(part)) + part)


def _with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def opened(command: Sequence[str] | str, cwd: Path) -> int:
    """Starts a program in the background and returns its process id. A text is a shell command. Raises OSError."""
    process = subprocess.Popen(
        _words(command), cwd=cwd, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


def executed(command: Sequence[str] | str, cwd: Path, timeout_s: float) -> dict[str, Any]:
    """Runs a command to its end, without waiting for its background processes.

    Returns:
        `stdout`, `stderr` (text) and `returncode`; or `timed_out`, if its process group was ended.

    Raises:
        OSError: the command could not be started.
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
