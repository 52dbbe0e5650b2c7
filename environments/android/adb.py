"""Send commands to phones through an adb server, over adb's socket protocol.

Other programs use the server, too, so the client never starts or ends it. A request is its length in four hexadecimal
digits, then its text; the server answers `OKAY`, or `FAIL` with a reason.

Source: platform/packages/modules/adb, `OVERVIEW.TXT` and `SERVICES.TXT`; the packets of `shell_protocol.h`.
"""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from schemas.failure import SandboxFailure

T = TypeVar("T")
CALL_S = 10.0
"""Maximum seconds to connect, and between two received parts of an answer."""
TRIES = 2
_OUT, _ERR, _EXIT = 1, 2, 3


class AdbFailure(SandboxFailure):
    """Raised if the server or the phone refuses a request."""


class AdbUnreachable(SandboxFailure):
    """Raised if the server does not answer in time, no server listens, or another program listens on its port."""


class _NotAdb(Exception):
    """Raised if an answer is not of adb's protocol."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """The result of a command on a phone."""

    out: str
    """Standard output and standard error, in the order of their packets."""
    code: int


@dataclass(frozen=True, slots=True)
class Adb:
    """A client of the adb server at `host` and `port`. Each call opens a connection and blocks until its end."""

    host: str = "127.0.0.1"
    port: int = 5037
    limit_s: float = CALL_S

    def devices(self) -> dict[str, str]:
        """Returns the state of each phone by serial: `device` if it can be used, else `offline`, for example.

        Raises:
            AdbUnreachable: the server does not answer in time.
            AdbFailure: the server refuses the request.
        """
        lines = self._retried(lambda: self._text("host:devices")).splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def shell(self, serial: str, command: str, tries: int = 1) -> ShellResult:
        """Runs a command in the phone's shell.

        Args:
            serial: the phone.
            command: a line of the shell.
            tries: maximum attempts while the server does not answer; 1 for a command that must not run twice.

        Raises:
            AdbUnreachable: the server or the phone does not answer in time.
            AdbFailure: there is no such phone, or it cannot be used.
        """
        return self._retried(lambda: _packets(self._stream(serial, f"shell,v2,raw:{command}")), tries)

    def exec_out(self, serial: str, command: str) -> bytes:
        """Returns the raw output of a command, such as a screenshot; raises the errors of `shell`."""
        return self._retried(lambda: self._stream(serial, f"exec:{command}"))

    def _retried(self, call: Callable[[], T], tries: int = TRIES) -> T:
        for left in reversed(range(tries)):
            try:
                return call()
            except _NotAdb as error:
                problem = f"{self.host}:{self.port} is no adb server: it answered {error}"
                raise AdbUnreachable(f"{problem}; name adb's own address, usually 127.0.0.1:5037") from error
            except (OSError, EOFError) as error:
                if not left:
                    why = str(error) or type(error).__name__
                    raise AdbUnreachable(f"the adb server at {self.host}:{self.port} does not answer: {why}") from error
        raise AssertionError("a call has at least one try")

    def _text(self, request: str) -> str:
        with self._connected() as stream:
            _ask(stream, request)
            return _counted(stream)

    def _stream(self, serial: str, service: str) -> bytes:
        with self._connected() as stream:
            _ask(stream, f"host:transport:{serial}")
            _ask(stream, service)
            parts = list[bytes]()
            while part := stream.recv(1 << 16):
                parts.append(part)
            return b"".join(parts)

    def _connected(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), self.limit_s)


def _ask(stream: socket.socket, request: str) -> None:
    sent = request.encode()
    stream.sendall(b"%04x" % len(sent) + sent)
    if (status := _exactly(stream, 4)) not in (b"OKAY", b"FAIL"):
        raise _NotAdb(repr(status))
    if status == b"FAIL":
        reason = _counted(stream)
        raise AdbFailure(f"adb refused {request.partition(':')[0]}:{request.partition(':')[2][:80]}: {reason}")


def _counted(stream: socket.socket) -> str:
    """Reads a text after its length."""
    length = _exactly(stream, 4)
    try:
        return _exactly(stream, int(length, 16)).decode(errors="replace")
    except ValueError as error:
        raise _NotAdb(repr(length)) from error


def _exactly(stream: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (part := stream.recv(count - len(found))):
            raise EOFError("the connection ended early")
        found += part
    return found


def _packets(received: bytes) -> ShellResult:
    """Parses packets of an id byte, a little-endian length and data; raises EOFError without an exit code."""
    out, at = b"", 0
    while at + 5 <= len(received):
        kind, count = struct.unpack_from("<BI", received, at)
        data, at = received[at + 5 : at + 5 + count], at + 5 + count
        if kind == _EXIT:
            return ShellResult(out.decode(errors="replace"), data[0] if data else 0)
        out += data if kind in (_OUT, _ERR) else b""
    raise EOFError("the command ended without an exit code: the phone was unplugged, or its adbd is older than 2016")
