"""Wrap the wire's client for blocking code: gymnasium's loops, TRL's tools, a notebook.

The event loop runs in its own thread, so that the server's pings are answered while a model generates.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from environments.openenv.client import Fields, ServerLost, StepResponse, WireClient

T = TypeVar("T")
WAIT_S = 60.0
"""Default seconds to wait for an answer."""


class BlockingClient:
    """Runs episodes in turn; only the next `reset` reopens a lost connection.

    Args:
        url: the server's base URL.
        token: token that the server requires, if any.
        wait_s: time limit of an answer, in seconds; a late answer is never taken for the answer to another message.
    """

    def __init__(self, url: str, token: str | None = None, wait_s: float = WAIT_S) -> None:
        self._url, self._token, self._wait_s = url, token, wait_s
        self._client: WireClient | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flywheel-wire", daemon=True)
        self._thread.start()

    def reset(self, **fields: Any) -> StepResponse:
        """Begins an episode; raises Refused or Lost, the latter also after `close`."""
        if self._loop.is_closed():
            raise ServerLost("the client is closed: make another one")
        if self._client is None or not self._client.alive:
            client = WireClient(self._url, self._token)
            self._waited("connect", client.open())
            self._client = client
        return self._waited("reset", self._client.reset(fields))

    def step(self, action: Fields) -> StepResponse:
        """Performs an action; raises Refused or Lost, the latter also if no episode has begun."""
        if self._client is None:
            raise ServerLost("no episode has begun, or its connection was lost: reset first")
        return self._waited("step", self._client.step(action))

    def close(self) -> None:
        """Ends the session and its thread; may be called again."""
        if self._loop.is_closed():
            return
        client, self._client = self._client, None
        if client is not None:
            self._run(client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._wait_s)
        self._loop.close()

    def _waited(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(self._wait_s):
                return await work

        try:
            return self._run(in_time())
        except (ServerLost, TimeoutError, KeyboardInterrupt) as error:
            lost, self._client = self._client, None
            if lost is not None:
                self._loop.call_soon_threadsafe(lost.drop)
            if isinstance(error, TimeoutError):
                raise ServerLost(f"{self._url} gave no answer to {what} within {self._wait_s:g} s") from error
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
