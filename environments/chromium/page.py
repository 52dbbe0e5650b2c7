"""Control one page of a browser, with its own target and session: evaluate scripts, send input, and draw on demand.

Every trajectory gets a freshly written document, with its own JavaScript world, since a document that is only seeded
again keeps enough state to change rewards. The target is reused, and the document is opened in a frame (`stage.js`),
since a navigation of the whole target would cost twice as much.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Self

from environments.chromium.browser import Browser, Reply
from schemas.failure import SandboxFailure

PUMP_S = 0.005
DRAWING_S = 5.0
"""Seconds within which a browser draws a screenshot. The first frames of a new document have none while Chromium makes
its surface, which takes long on a busy machine."""
OPENINGS = 120
"""Documents opened in one target before it is closed, so that their leftover memory stays under about 300 MB."""
AGAIN_S = 0.001
END_S = 5.0
"""Time limit in seconds for closing a hanging page, after which its browser is ended; most pages take milliseconds."""
STAGE = Path(__file__).with_name("stage.js").read_text()
_LOADED = (
    "new Promise((done) => (document.readyState === 'complete' ? done() : addEventListener('load', () => done())))"
)
SCREENSHOT: Reply = {"screenshot": {"format": "png", "optimizeForSpeed": True}}


@dataclass(frozen=True, slots=True)
class PageKind:
    """The settings of a page, which is reused only for trajectories with equal settings."""

    width: int
    """Pixels."""
    height: int
    ground: str
    """Base address for relative addresses in documents; the address of a page without scripts."""
    script: str
    """Script that runs before a document's own scripts."""


class ScriptFailure(SandboxFailure):
    """Raised if a script in the page threw an exception; the page itself works.

    Args:
        text: the exception and its location.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"script: {text}")


class Page:
    """A page for one trajectory at a time; every method raises SandboxFailure after the page has ended."""

    def __init__(self, browser: Browser, kind: PageKind, target: str, session: str) -> None:
        self._browser = browser
        self._kind = kind
        self._target = target
        self._session = session
        self._openings = 0
        self._drawn = False

    @classmethod
    async def acquire(cls, browser: Browser, kind: PageKind) -> "Page":
        """Returns an idle page of this kind, or a new one; closes idle pages of another kind."""
        for page in reversed(list(browser.idle)):
            if page in browser.idle:
                browser.idle.remove(page)
                if page._kind == kind:
                    return page
                await page.close()
        return await cls._made(browser, kind)

    @classmethod
    async def _attached(cls, browser: Browser, kind: PageKind, **more: Any) -> Self:
        """Makes a blank page that has the focus. `more` are further fields of `Target.createTarget`."""
        send = browser.connection.send
        shape = {"url": "about:blank", "width": kind.width, "height": kind.height, "enableBeginFrameControl": True}
        target = (await send("Target.createTarget", {**shape, **more}))["targetId"]
        session = (await send("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        page = cls(browser, kind, target, session)
        await page.send("Emulation.setFocusEmulationEnabled", enabled=True)
        return page

    @classmethod
    async def _made(cls, browser: Browser, kind: PageKind) -> "Page":
        page = await cls._attached(browser, kind)
        answer = await page.send("Page.navigate", url=kind.ground)
        if "errorText" in answer:
            raise SandboxFailure(f"{kind.ground}: {answer['errorText']}")
        await page.evaluate(f"({_LOADED}).then(() => {STAGE.strip()}({json.dumps(kind.script)}))")
        return page

    async def release(self) -> None:
        """Keeps the page for the next trajectory of its kind, with its pointer at rest; closes a page after `OPENINGS`
        documents."""
        if self._openings >= OPENINGS:
            await self.close()
        elif self._browser.alive:
            await self.input([self.send("Input.dispatchMouseEvent", type="mouseReleased", x=0, y=0, button="left")])
            self._browser.idle.append(self)

    def send(self, method: str, **params: Any) -> "asyncio.Future[Reply]":
        """Sends a command to the page without waiting."""
        return self._browser.connection.send(method, params, self._session)

    async def open(self, url: str, start: str, before: str = "null") -> Any:
        """Opens the document at `url` in place of the previous document.

        Args:
            url: address of the document, which is read once and cached.
            start: a JavaScript expression of the document's `world` (its window) and of the `notes` about it.
            before: an expression of `world` that is evaluated before the document's own scripts.

        Returns:
            The value of `start`, or of its promise.
        """
        self._openings += 1
        self._drawn = False
        return await self.evaluate(f"stage({json.dumps(url)}, (world) => {before}).then(([world, notes]) => {start})")

    async def evaluate(self, expression: str) -> Any:
        """Returns the JSON value of a JavaScript expression or its promise; an exception becomes a ScriptFailure.

        In it, `world` is the window of the open document. A number that JSON does not have, such as NaN, is its text.
        """
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptFailure(details.get("exception", {}).get("description", details["text"]))
        result = answer["result"]
        return result.get("value", result.get("unserializableValue"))

    async def ready(self) -> None:
        """Draws the document's first frame if there is none yet, since input before it is acknowledged but lost.

        A frame without a picture may not have been drawn.
        """
        if not self._drawn:
            await self.screenshot()

    async def input(self, events: Sequence["asyncio.Future[Reply]"]) -> None:
        """Waits until the page has processed sent input; draws frames meanwhile, since some input is processed only
        with a frame."""
        pending = set(events)
        while pending:
            pending = (await asyncio.wait(pending, timeout=PUMP_S))[1]
            if pending:
                await self.frame()
        for event in events:
            event.result()

    async def frame(self) -> None:
        """Draws a frame."""
        await self._draw({})

    async def screenshot(self) -> bytes:
        """Draws a frame and returns it as PNG."""
        ends = monotonic() + DRAWING_S
        while True:
            drawn = await self._draw(SCREENSHOT)
            if "screenshotData" in drawn:
                self._drawn = True
                return base64.b64decode(drawn["screenshotData"])
            if monotonic() > ends:
                raise SandboxFailure(f"the browser drew no screenshot within {DRAWING_S:g} s")
            await asyncio.sleep(PUMP_S)

    async def _draw(self, params: Reply) -> Reply:
        """Draws a frame to the end even if its caller is cancelled.

        The next frame must not begin before this one is done.
        """
        drawing = asyncio.ensure_future(self._draw_alone(params))
        _retrieve(drawing)
        return await asyncio.shield(drawing)

    async def _draw_alone(self, params: Reply) -> Reply:
        async with self._browser.frames:
            return await self.send("HeadlessExperimental.beginFrame", **params)

    async def close(self) -> None:
        """Closes the page, but not while a frame is drawn."""
        with contextlib.suppress(SandboxFailure):
            async with self._browser.frames:
                await self._browser.connection.send("Target.closeTarget", {"targetId": self._target})

    async def end(self) -> bool:
        """Closes the page even if it hangs. It terminates the running script, repeatedly, since queued input may hang
        the page again.

        Returns:
            Whether the page closed within `END_S` and the browser is alive.
        """
        closing = asyncio.ensure_future(self.close())
        try:
            async with asyncio.timeout(END_S):
                while not closing.done():
                    await self.send("Runtime.terminateExecution")
                    await asyncio.wait((closing,), timeout=AGAIN_S)
        except TimeoutError:
            return False
        except SandboxFailure:  # the page or the whole browser has ended
            pass
        return self._browser.alive


def _retrieve(work: "asyncio.Future[Any]") -> None:
    """Marks a failure as retrieved, since its waiter may have gone."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
