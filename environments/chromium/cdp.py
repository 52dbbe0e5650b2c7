"""Exchange Chrome DevTools Protocol messages over `--remote-debugging-pipe`: NUL-separated JSON on two descriptors.

A pipe needs no port, no handshake and no web socket library. It closes when the browser ends, so every pending call
fails at once instead of waiting for a timeout. One pipe carries many flat sessions.
"""

import asyncio
import json
import os
from typing import Any

from schemas.failure import SandboxFailure

Reply = dict[str, Any]


class Connection(asyncio.Protocol):
    """One browser's pipe."""

    def __init__(self) -> None:
        self._replies: dict[int, tuple[str, asyncio.Future[Reply]]] = {}
        self._lost: dict[str, str] = {}
        self._buffer = bytearray()
        self._unsent = bytearray()
        self._number = 0
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._why = "the browser has died"
        self.gone = False
        """Whether the browser's end of the pipe is closed."""

    async def open(self, read_fd: int, write_fd: int) -> None:
        """Takes over both descriptors; they are closed with the connection."""
        loop = asyncio.get_running_loop()
        self._reader, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(read_fd, "rb", 0))
        self._writer, _ = await loop.connect_write_pipe(lambda: self, os.fdopen(write_fd, "wb", 0))

    def close(self, why: str = "the browser is closed") -> None:
        """Closes both ends; pending and later requests fail with the reason `why`."""
        for transport in (self._reader, self._writer):
            if transport is not None:
                transport.close()
        self._lose(why)

    def send(self, method: str, params: Reply | None = None, session: str = "") -> "asyncio.Future[Reply]":
        """Sends a command and returns the future of its result, so that commands can be sent without waiting.

        The future raises SandboxFailure if the browser or the session ends, or if the command is refused.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        lost = self._why if self.gone else self._lost.get(session)
        if lost is not None or self._writer is None:
            _fail(reply, f"{method}: {lost or 'not connected'}")
            return reply
        self._number += 1
        message: Reply = {"id": self._number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        self._replies[self._number] = (session, reply)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += json.dumps(message).encode() + b"\0"
        return reply

    def _flush(self) -> None:
        """Writes all queued commands at once, since each write wakes the browser's reader."""
        unsent, self._unsent = bytes(self._unsent), bytearray()
        if self._writer is not None:
            self._writer.write(unsent)

    def data_received(self, data: bytes) -> None:
        """Splits the stream into messages."""
        self._buffer += data
        if b"\0" not in data:
            return
        *messages, rest = self._buffer.split(b"\0")
        self._buffer = bytearray(rest)
        for message in messages:
            self._take(json.loads(message))

    def connection_lost(self, exc: Exception | None) -> None:
        """Handles that the browser closed one of its ends."""
        self._lose(self._why)

    def _take(self, message: Reply) -> None:
        if "id" in message:
            if message["id"] in self._replies:
                _settle(self._replies.pop(message["id"])[1], message)
            return
        method, session = message["method"], message.get("sessionId", "")
        if method == "Target.detachedFromTarget":
            self._lose_session(message["params"]["sessionId"], "the page is closed")
        elif method == "Inspector.targetCrashed":
            self._lose_session(session, "the page has crashed")

    def _lose_session(self, session: str, why: str) -> None:
        self._lost[session] = why
        for number in [number for number, (owner, _) in self._replies.items() if owner == session]:
            _fail(self._replies.pop(number)[1], why)

    def _lose(self, why: str) -> None:
        self.gone, self._why = True, why
        for number in list(self._replies):
            _fail(self._replies.pop(number)[1], why)


def _settle(reply: "asyncio.Future[Reply]", message: Reply) -> None:
    if "error" in message:
        _fail(reply, f"the browser refused: {message['error'].get('message', '')}")
    elif not reply.done():
        reply.set_result(message["result"])


def _fail(future: "asyncio.Future[Reply]", why: str) -> None:
    if not future.done():
        future.set_exception(SandboxFailure(why))
        future.exception()  # marks the exception as retrieved, since its waiter may have gone
