"""One page of a browser: its own target and session, evaluated, fed with input, and drawn on demand.

A page is opened fresh for each trajectory: a page that is used again keeps enough of its past to change rewards.
"""

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from typing import Any

from environments.browser import Browser
from schemas.failure import SandboxFailure

PUMP_S = 0.005
SCREENSHOT = {"screenshot": {"format": "png", "optimizeForSpeed": True}}


class Page:
    """A page. Made by `open`, ended by `close`; every method raises SandboxFailure once it is gone."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    @classmethod
    async def open(cls, browser: Browser, width: int, height: int) -> "Page":
        """A blank page of this many pixels."""
        send = browser.connection.send
        shape = {"url": "about:blank", "width": width, "height": height, "enableBeginFrameControl": True}
        target = (await send("Target.createTarget", shape))["targetId"]
        session = (await send("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        return cls(browser, target, session)

    def send(self, method: str, **params: Any) -> "asyncio.Future[dict[str, Any]]":
        """Sends a command to the page without waiting."""
        return self._browser.connection.send(method, params, self._session)

    async def load(self, url: str, script: str) -> None:
        """Goes to `url`, running `script` before anything of the page; returns when the document has begun."""
        await asyncio.gather(
            self.send("Page.enable"), self.send("Page.addScriptToEvaluateOnNewDocument", source=script)
        )
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

    async def input(self, events: Sequence["asyncio.Future[dict[str, Any]]"]) -> None:
        """Waits until sent input has been taken; some input is only taken with a frame, so frames are drawn."""
        taken = asyncio.gather(*events)
        try:
            while not (await asyncio.wait([taken], timeout=PUMP_S))[0]:
                await self.frame()
        finally:
            if not taken.done():
                taken.cancel()
        await taken

    async def frame(self) -> None:
        """Draws a frame."""
        await asyncio.shield(asyncio.ensure_future(self._draw({})))

    async def screenshot(self) -> bytes:
        """Draws a frame and returns it as PNG."""
        for _ in range(3):
            drawn = await asyncio.shield(asyncio.ensure_future(self._draw(SCREENSHOT)))
            if "screenshotData" in drawn:
                return base64.b64decode(drawn["screenshotData"])
        raise SandboxFailure("the browser draws no screenshots")

    async def close(self) -> None:
        """Closes the page, not while a frame is in flight."""
        with contextlib.suppress(SandboxFailure):
            async with self._browser.frames:
                await self._browser.connection.send("Target.closeTarget", {"targetId": self._target})

    async def _draw(self, params: dict[str, Any]) -> dict[str, Any]:
        async with self._browser.frames:
            return await self.send("HeadlessExperimental.beginFrame", **params)
