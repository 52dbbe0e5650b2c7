"""Hold one session on an OpenEnv server: JSON messages over its WebSocket `/ws`, each answered before the next.

A session is a sequence of episodes in one connection. It is never reopened, since a server gives each new connection a
new environment, which was not reset. An error or a late answer ends the session. Frames are not compressed, since
screenshots already are: compression would cost ten times the time that it saves (docs/sandboxes.md).
"""

import asyncio
import contextlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from common.text import restored

T = TypeVar("T")
SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
MOST_BYTES = 64 << 20
"""Maximum bytes of one answer."""
PING_S, PONG_S = 20.0, 60.0
"""Seconds between pings of a quiet server, and time limit in seconds for a busy server's answer to a ping."""
CAPACITY = "CAPACITY_REACHED"
INVALID = "VALIDATION_ERROR"
ENDS = (CAPACITY, "FACTORY_ERROR", "SESSION_ERROR")
"""Errors after which the server closes the connection."""
Fields = Mapping[str, Any]


class ServerRefused(Exception):
    """Raised if the server answered with an error.

    Args:
        code: a code of OpenEnv, such as `VALIDATION_ERROR`.
        message: its message.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(f"{message} ({code})")


class ServerLost(Exception):
    """Raised if the server does not exist, is gone, or sends messages that are not OpenEnv's."""


@dataclass(frozen=True, slots=True)
class StepResponse:
    """A server's answer to `reset` and `step`."""

    observation: dict[str, Any]
    reward: float | None
    done: bool
    metadata: dict[str, Any]


def as_written(action: Any) -> Any:
    """Restores the texts of an action, for a model whose prompt had broken tokens (`common.text`)."""
    if not isinstance(action, dict):
        return action
    return {name: restored(value) if isinstance(value, str) else value for name, value in cast(Fields, action).items()}


def address_of(url: str) -> str:
    """Returns the WebSocket address for a server's base URL; raises ValueError for an invalid one."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ValueError(f"{url!r} is not an address: write, for example, http://127.0.0.1:8000")
    return urlunsplit((SCHEMES[parts.scheme], parts.netloc, f"{parts.path.rstrip('/')}/ws", "", ""))


class OpenEnvSession(ABC):
    """Runs episodes in turn, over any transport; its methods are called in turn, in one event loop.

    Args:
        place: name of the server, for messages.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._waits_for = ""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the session accepts further requests."""

    @abstractmethod
    async def open(self) -> None:
        """Begins the session; raises Lost."""

    async def reset(self, fields: Fields) -> StepResponse:
        """Begins an episode; raises Refused or Lost."""
        return await self._call("reset", "observation", fields, _answer)

    async def step(self, action: Fields) -> StepResponse:
        """Performs an action; raises Refused or Lost."""
        return await self._call("step", "observation", action, _answer)

    async def state(self) -> dict[str, Any]:
        """Requests the state of the episode; raises Refused or Lost."""
        return await self._call("state", "state", None, lambda _, data: data)

    @abstractmethod
    async def close(self) -> None:
        """Ends the session; raises nothing."""

    @abstractmethod
    def drop(self) -> None:
        """Ends the session at once, even during a request."""

    @abstractmethod
    async def _exchange(self, kind: str, message: str) -> tuple[str | bytes, bool]:
        """Sends a message and returns the answer, and whether it answers this message or arrived before it; raises
        Lost."""

    async def _call(self, kind: str, wanted: str, data: Fields | None, read: Callable[[str, dict[str, Any]], T]) -> T:
        if not self.alive:
            raise ServerLost("the session is closed")
        if self._waits_for:
            raise ServerLost(f"the session is lost: its {self._waits_for} was never answered")
        self._waits_for = kind
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        text, asked = await self._exchange(kind, json.dumps(message))
        self._waits_for = ""
        try:
            return read(kind, _data(kind, wanted, text) if asked else _unasked(kind, text))
        except (ServerLost, ServerRefused) as error:
            if isinstance(error, ServerLost) or error.code in ENDS:
                self.drop()
            raise


class WireClient(OpenEnvSession):
    """A session on a server.

    Args:
        url: the server's base URL, with `http`, `https`, `ws` or `wss`.
        token: sent as `Authorization: Bearer`, if there is one.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url)
        self.url, self._token = url, token
        self._connection: ClientConnection | None = None

    @property
    def alive(self) -> bool:
        """Whether the session is connected."""
        return self._connection is not None

    async def open(self) -> None:
        """Connects; raises Lost."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else None
        local = urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")
        try:
            self._connection = await connect(
                address_of(self.url),
                additional_headers=headers,
                compression=None,
                max_size=MOST_BYTES,
                ping_interval=PING_S,
                ping_timeout=PONG_S,
                proxy=None if local else True,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            hint = ": it asks for another token" if status in (401, 403) else ""
            raise ServerLost(f"{self.url} opens no session (HTTP {status}){hint}") from error
        except (OSError, WebSocketException, TimeoutError) as error:
            raise ServerLost(f"{self.url} does not answer: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        """Ends the session; raises nothing."""
        connection = self._connection
        if connection is None or self._waits_for:
            self.drop()
            return
        self._connection = None
        with contextlib.suppress(OSError, WebSocketException):
            await connection.send('{"type":"close"}')
            await connection.close()

    def drop(self) -> None:
        """Cuts the connection at once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.transport.abort()

    async def _exchange(self, kind: str, message: str) -> tuple[str | bytes, bool]:
        connection = self._connection
        assert connection is not None
        try:
            if (early := await _early(connection)) is not None:
                return early, False
            asked = await _sent(connection, message)
            return await connection.recv(), asked
        except (OSError, WebSocketException) as error:
            self.drop()
            cause = str(error) or type(error).__name__
            raise ServerLost(f"the server at {self.url} ended the session at {kind}: {cause}") from error


async def _early(connection: ClientConnection) -> str | bytes | None:
    """Reads a message that was not requested; None if there is none. Messages have no number, so a second answer to a
    message would be taken for the answer to the next message."""
    try:
        async with asyncio.timeout(0):
            return await connection.recv()
    except TimeoutError:
        return None


async def _sent(connection: ClientConnection, message: str) -> bool:
    """Sends a message; False if the connection is closed. A full server sends its reason and closes before any
    request."""
    with contextlib.suppress(ConnectionClosed):
        await connection.send(message)
        return True
    return False


def _data(kind: str, wanted: str, text: str | bytes) -> dict[str, Any]:
    """Returns the content of a frame; raises Refused for an error, and Lost for a message of another type than the
    expected one."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: JSON is nested too deep
        raise ServerLost(f"the answer to {kind} is not JSON") from error
    data = message.get("data") if isinstance(message, dict) else None
    if not isinstance(data, dict):
        raise ServerLost(f"the answer to {kind} is not an OpenEnv message")
    if message.get("type") == "error":
        raise ServerRefused(_text(data.get("code", "UNKNOWN")), _reason(data))
    if message.get("type") != wanted:
        raise ServerLost(f"the answer to {kind} is a {_text(message.get('type'))!r}, and not a {wanted!r}")
    return data


def _unasked(kind: str, text: str | bytes) -> NoReturn:
    """Raises Refused if the server sent its reason to close the connection without a request, and Lost for any other
    message."""
    try:
        _data(kind, "error", text)
    except (ServerRefused, ServerLost) as error:
        if isinstance(error, ServerRefused) and error.code in ENDS:
            raise
    raise ServerLost(f"the server sent more than it was asked for before {kind}, and answers could be mistaken")


def _reason(data: dict[str, Any]) -> str:
    """Returns the message of an error, with the fields concerned."""
    message = _text(data.get("message", "no reason given"), 400)
    errors = data.get("errors")
    if not isinstance(errors, list):
        return message
    fields = [f"{_place(one.get('loc'))}: {_text(one.get('msg'), 200)}" for one in errors if isinstance(one, dict)]
    return f"{message}: {'; '.join(fields)}"[:400] if fields else message


def _place(given: Any) -> str:
    """Returns the location of an error in pydantic's form: the keys on its path."""
    return ".".join(map(_text, given)) if isinstance(given, list) else _text(given or "")


def _text(given: Any, most: int = 40) -> str:
    """Shortens a value from the server for a message; names only the type of other than plain values, since these may
    have any size and depth."""
    plain = given is None or isinstance(given, str | bool | int | float)
    return str(given)[:most] if plain else f"a {type(given).__name__}"


def _answer(kind: str, data: dict[str, Any]) -> StepResponse:
    """Reads the fields of an observation in the types of the protocol; raises Lost."""
    observation, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
    metadata = data.get("metadata")
    if not isinstance(observation, dict):
        raise ServerLost(f"the answer to {kind} has no `observation`")
    if not isinstance(done, bool):
        raise ServerLost(f"the answer to {kind} has a `done` that is not true or false: {_text(done)!r}")
    given = None if reward is None else _number(reward)
    if reward is not None and given is None:
        raise ServerLost(f"the answer to {kind} has a `reward` that is not a number: {_text(reward)!r}")
    return StepResponse(observation, given, done, metadata if isinstance(metadata, dict) else {})


def _number(given: Any) -> float | None:
    """Converts to a finite number; None for other values, and for whole numbers that are too large."""
    try:
        value = float(given) if isinstance(given, bool | int | float) else math.nan
    except OverflowError:
        return None
    return value if math.isfinite(value) else None
