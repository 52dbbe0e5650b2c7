"""A server between a client and another server that can be away, answer `503 SlowDown`, be silent, or break off."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
Mode = Literal["whole", "away", "busy", "silent"]


class Proxy:
    """Passes on what comes to `address`, as long as it is `whole`.

    Args:
        behind: the address of the server behind it.
    """

    def __init__(self, behind: str) -> None:
        split = urlsplit(behind)
        self._behind = (split.hostname or "", split.port or 80)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._mode: Mode = "whole"
        self._open: list[socket.socket] = []
        self.budget: int | None = None
        """How many bytes it still takes before it is away by itself."""
        self.refused = 0
        """How many requests were not passed on."""
        threading.Thread(target=self._accept, daemon=True).start()

    def be(self, mode: Mode) -> None:
        """From now on it behaves so; what is open is broken off."""
        self._mode, self.budget = mode, None
        self._break()

    def gone_for(self, seconds: float, mode: Mode = "away") -> None:
        """Behaves so, and as it should after so long."""
        self.be(mode)
        threading.Timer(seconds, lambda: self.be("whole")).start()

    def close(self) -> None:
        """Ends it."""
        self._server.close()
        self._break()

    def _break(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if self._mode != "whole":
                self.refused += 1
            if self._mode == "busy":
                _refuse(client)
            elif self._mode == "silent":
                self._open.append(client)
                while client.recv(1 << 16):
                    pass
            elif self._mode == "whole":
                with socket.create_connection(self._behind) as server:
                    self._open += [client, server]
                    if self._mode != "whole":  # it went away while this one connected
                        return
                    back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
                    back.start()
                    self._pass(client, server, counted=True)
                    back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, counted: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if counted and self.budget is not None:
                    self.budget -= len(data)
                    if self.budget < 0:
                        self.gone_for(1.0)
                        return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def _refuse(client: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(1 << 16)
        if not more:
            return
        data += more
    client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n")
    client.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(SLOW_DOWN), SLOW_DOWN))
    client.shutdown(socket.SHUT_WR)
    while client.recv(1 << 16):
        pass


@contextmanager
def proxy_of(behind: str) -> Iterator[Proxy]:
    """A proxy as long as the `with`."""
    proxy = Proxy(behind)
    try:
        yield proxy
    finally:
        proxy.close()
