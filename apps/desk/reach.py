"""Answer every request within seconds while the lake's store is unreachable, and recover when it is back.

The pages' lake does not retry (`apps.desk.serve`), so a store that refuses is an error at once. A silent store would
hold a request for minutes with any retry policy. So during a slow request, the store is polled, and if it is silent,
the request is answered with an error. While the store is unreachable, only one thread polls it.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.config.sections import LakeConfig
from schemas.failure import StoreUnreachable
from storage.address import resolve
from storage.explained import explained
from storage.schema_marker import NAME

SLOW_S = 3.0
"""Seconds after which a slow request starts polling the store, repeatedly until it is answered."""
SILENT_S = 4.0
"""Seconds without an answer after which a store counts as unreachable."""
PAUSE_S = 1.0
"""Seconds between two polls of an unreachable store."""
WITHOUT = ("/static/", "/vega.js", "/live/", "/api/live/")
"""Paths of requests that use no store, or wait for a reviewer."""
ADVICE = "Check `lake.endpoint` and the network; this site answers again by itself once the store does."


class Unreached(Protocol):
    """Makes the answer to a request while the store is unreachable."""

    def __call__(self, request: Request, problem: str, /) -> Response:
        """Returns the response with this text."""
        ...


class StoreConnection:
    """Tracks from requests whether a store answers; safe to share between threads.

    Args:
        place: address of the store, for messages.
        ask: sends a small request to the store; raises StoreUnreachable without an answer.
        back: is called when the store answers again; a new outage may interrupt the call.
    """

    def __init__(self, place: str, ask: Callable[[], object], back: Callable[[], object]) -> None:
        self._ask, self._back = ask, back
        self._lock = threading.Lock()
        self._looking, self._missed = False, False
        self._silent = f"The S3 endpoint of {place} does not answer."
        self.problem = ""
        """Reason why the store is unreachable; empty while it answers."""

    @classmethod
    def of(cls, config: LakeConfig, back: Callable[[], object]) -> "StoreConnection | None":
        """Makes the tracker of a lake's store; None for a folder of this machine."""
        place = resolve(config)
        if place.local:
            return None
        files = place.arrow()  # the only client that fails within seconds and needs no lock of the lake

        def ask() -> None:
            with explained(place.uri):
                files.get_file_info(NAME)

        return cls(place.uri, ask, back)

    def look(self, missed: bool = False) -> None:
        """Polls the store in a thread until it answers.

        Args:
            missed: whether a request to it has failed.
        """
        with self._lock:
            self._missed |= missed
            if self._looking:
                return
            self._looking = True
        threading.Thread(target=self._look, name="reach", daemon=True).start()

    async def answers(self) -> bool:
        """Waits up to `SILENT_S` for an answer of the store; False if it is unreachable."""
        self.look()
        until = time.monotonic() + SILENT_S
        while self._looking and not self.problem and time.monotonic() < until:
            await asyncio.sleep(0.05)
        with self._lock:
            if self._looking and not self.problem:
                self.problem, self._missed = self._silent, True
        return not self.problem

    def _look(self) -> None:
        while (problem := self._found()) is not None:
            with self._lock:
                self.problem, self._missed = problem, True
            time.sleep(PAUSE_S)
        with self._lock:
            missed, self.problem, self._looking, self._missed = self._missed, "", False, False
        if missed:
            with suppress(StoreUnreachable):
                self._back()

    def _found(self) -> str | None:
        """Returns the reason why the store is unreachable; None if it answers, even with a refusal."""
        try:
            self._ask()
        except StoreUnreachable as error:
            return error.problem
        except Exception:
            return None
        return None


class StoreOutageGuard:
    """Answers requests with an error while the store is unreachable.

    Args:
        app: the application that answers otherwise.
        reach: state of the store.
        unreached: makes the answer.
    """

    def __init__(self, app: ASGIApp, reach: StoreConnection, unreached: Unreached) -> None:
        self._app, self._reach, self._unreached = app, reach, unreached

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request to the application if the store answers."""
        if scope["type"] != "http" or scope["path"].startswith(WITHOUT):
            return await self._app(scope, receive, send)
        if not self._reach.problem and await self._answered(scope, receive, send):
            return None
        return await self._unreached(Request(scope), self._reach.problem)(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether the application has answered; if not, its later output is dropped. A thread that waits for the store
        continues."""
        begun = given_up = False

        async def sent(message: Message) -> None:
            nonlocal begun
            if not given_up:
                begun = True
                await send(message)

        work = asyncio.ensure_future(self._app(scope, receive, sent))
        try:
            while not (await asyncio.wait({work}, timeout=SLOW_S))[0] and not begun:
                if not await self._reach.answers() and not begun:
                    given_up = True
                    work.add_done_callback(_forget)
                    return False
            await work
            return True
        finally:
            if not given_up:
                work.cancel()


def _forget(work: "asyncio.Future[None]") -> None:
    """Drops the outcome of an abandoned request."""
    if not work.cancelled():
        work.exception()
