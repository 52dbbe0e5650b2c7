"""A site whose lake's store is away: every request is answered in some seconds, and all is well once it is back.

The pages' lake has no patience (`apps.desk.serve`), so a store that refuses is an error at once. One that says nothing
keeps a request for minutes, whatever the patience: who waits for long has the store looked at, and is answered if it
is silent. While it is away one thread asks it, and nobody else.
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
from schemas.failure import OutOfReach
from storage.address import resolve
from storage.explained import explained
from storage.schema_marker import NAME

SLOW_S = 3.0
"""A request that takes longer has the store looked at, again and again until it is answered."""
SILENT_S = 4.0
"""A store that says nothing for so long is away."""
PAUSE_S = 1.0
"""Between two looks at a store that is away."""
WITHOUT = ("/static/", "/vega.js", "/live/", "/api/live/")
"""What begins so asks no store, or waits for a person."""
ADVICE = "Check `lake.endpoint` and the network; this site answers again by itself once the store does."


class Unreached(Protocol):
    """The answer to a request where the store is away, as the text says."""

    def __call__(self, request: Request, problem: str, /) -> Response:
        """What is sent."""
        ...


class Reach:
    """Whether a store answers, as far as anybody has asked; safe to share between threads.

    Args:
        place: its address, for messages.
        ask: asks it for something small; raises OutOfReach where it does not answer.
        back: what is done once it answers again; may be cut short by the store's going away again.
    """

    def __init__(self, place: str, ask: Callable[[], object], back: Callable[[], object]) -> None:
        self._ask, self._back = ask, back
        self._lock = threading.Lock()
        self._looking, self._missed = False, False
        self._silent = f"The S3 endpoint of {place} does not answer."
        self.problem = ""
        """What is wrong, while it is away."""

    @classmethod
    def of(cls, config: LakeConfig, back: Callable[[], object]) -> "Reach | None":
        """That of a lake's store; None for a folder of this machine."""
        place = resolve(config)
        if place.local:
            return None
        files = place.arrow()  # the one client that gives up in seconds, and waits for no lock of the lake's

        def ask() -> None:
            with explained(place.uri):
                files.get_file_info(NAME)

        return cls(place.uri, ask, back)

    def look(self, missed: bool = False) -> None:
        """Has the store looked at until it answers.

        Args:
            missed: whether somebody has asked it in vain.
        """
        with self._lock:
            self._missed |= missed
            if self._looking:
                return
            self._looking = True
        threading.Thread(target=self._look, name="reach", daemon=True).start()

    async def answers(self) -> bool:
        """Whether it answers now."""
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
            with suppress(OutOfReach):
                self._back()

    def _found(self) -> str | None:
        """What is wrong; None where it answers, if only that it refuses."""
        try:
            self._ask()
        except OutOfReach as error:
            return error.problem
        except Exception:
            return None
        return None


class StoreOutageGuard:
    """Answers by itself while the store is away, and where a request waits for it in vain.

    Args:
        app: what answers otherwise.
        reach: the store's.
        unreached: makes the answer.
    """

    def __init__(self, app: ASGIApp, reach: Reach, unreached: Unreached) -> None:
        self._app, self._reach, self._unreached = app, reach, unreached

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on what may be answered."""
        if scope["type"] != "http" or scope["path"].startswith(WITHOUT):
            return await self._app(scope, receive, send)
        if not self._reach.problem and await self._answered(scope, receive, send):
            return None
        return await self._unreached(Request(scope), self._reach.problem)(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether the app has; if not, it says no more. A thread of its own that waits for the store goes on."""
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
    """What became of it is told nobody."""
    if not work.cancelled():
        work.exception()
