"""One page of a browser: its own target and session, evaluated, fed with input, and drawn on demand.

Every trajectory gets a document freshly loaded, with a JavaScript world of its own: a document that is seeded again
instead keeps enough of its past to change rewards. The empty target around it is used again, because making one takes
most of the time of a start.
"""

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from typing import Any

from environments.browser import Browser
from environments.cdp import Reply
from schemas.failure import SandboxFailure

PUMP_S = 0.005
LOADS = 200
"""Documents loaded in one target before it is closed, so that what leaks stays small."""
SCREENSHOT: Reply = {"screenshot": {"format": "png", "optimizeForSpeed": True}}


class Page:
    """A page, held by one trajectory at a time; every method raises SandboxFailure once it is gone."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session
        self._loads = 0
        self._drawn = False

    @classmethod
    async def take(cls, browser: Browser, width: int, height: int, script: str) -> "Page":
        """A page of this many pixels, at rest; `script` runs before anything of the documents it loads."""
        if browser.resting:
            return browser.resting.pop()
        send = browser.connection.send
        shape = {"url": "about:blank", "width": width, "height": height, "enableBeginFrameControl": True}
        target = (await send("Target.createTarget", shape))["targetId"]
        session = (await send("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        page = cls(browser, target, session)
        await asyncio.gather(
            page.send("Page.enable"),
            page.send("Emulation.setFocusEmulationEnabled", enabled=True),
            page.send("Page.addScriptToEvaluateOnNewDocument", source=script),
        )
        return page

    async def give_back(self) -> None:
        """Keeps the page for the next trajectory, its pointer at rest, its past forgotten; closes it when worn out."""
        if self._loads >= LOADS:
            await self.close()
        elif self._browser.alive:
            moved = self.send("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
            await self.frame()
            await self.input([moved, self.send("Page.resetNavigationHistory")])
            self._browser.resting.append(self)

    def send(self, method: str, **params: Any) -> "asyncio.Future[Reply]":
        """Sends a command to the page without waiting."""
        return self._browser.connection.send(method, params, self._session)

    async def load(self, url: str) -> None:
        """Goes to `url`; returns when the document has begun."""
        self._loads += 1
        self._drawn = False
        answer = await self.send("Page.navigate", url=url)
        if "errorText" in answer:
            raise SandboxFailure(f"{url}: {answer['errorText']}")

    async def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression, or of its promise; an exception in it is a SandboxFailure."""
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise SandboxFailure(f"script: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    async def ready(self) -> None:
        """Draws the document's first frame if nobody has: before it, input is acknowledged and lost."""
        if not self._drawn:
            await self.frame()

    async def input(self, events: Sequence["asyncio.Future[Reply]"]) -> None:
        """Waits until sent input has been taken; some input is only taken with a frame, so frames are drawn."""
        taken = asyncio.gather(*events)
        _heard(taken)
        try:
            while not (await asyncio.wait([taken], timeout=PUMP_S))[0]:
                await self.frame()
        finally:
            if not taken.done():
                taken.cancel()
        await taken

    async def frame(self) -> None:
        """Draws a frame."""
        await self._draw({})

    async def screenshot(self) -> bytes:
        """Draws a frame and returns it as PNG."""
        for _ in range(3):
            drawn = await self._draw(SCREENSHOT)
            if "screenshotData" in drawn:
                return base64.b64decode(drawn["screenshotData"])
        raise SandboxFailure("the browser draws no screenshots")

    async def _draw(self, params: Reply) -> Reply:
        """Draws to the end even if nobody waits any more: the next frame must not begin before this one is done."""
        drawing = asyncio.ensure_future(self._draw_alone(params))
        _heard(drawing)
        return await asyncio.shield(drawing)

    async def _draw_alone(self, params: Reply) -> Reply:
        async with self._browser.frames:
            drawn = await self.send("HeadlessExperimental.beginFrame", **params)
        self._drawn = True
        return drawn

    async def close(self) -> None:
        """Closes the page, not while a frame is in flight."""
        with contextlib.suppress(SandboxFailure):
            async with self._browser.frames:
                await self._browser.connection.send("Target.closeTarget", {"targetId": self._target})


def _heard(work: "asyncio.Future[Any]") -> None:
    """Marks a failure as heard: it is told to whoever waits, and nobody may be waiting any more."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
