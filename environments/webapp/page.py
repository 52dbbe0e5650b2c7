"""Drive a page of a web application: a whole page at an address, in a browser context of its own.

Applications store data in cookies and in the browser's storage, so no two leases share a context; it is discarded with
the lease. The page is navigated like a user's, since an application reads its address.
"""

import asyncio
import contextlib
from typing import Any

from environments.chromium.browser import Browser
from environments.chromium.page import Page, PageKind, ScriptFailure
from schemas.failure import SandboxFailure


class WebPage(Page):
    """One page in a context of its own; `PageKind.ground` is unused, since it is opened at an address."""

    _context: str

    @classmethod
    async def _made(cls, browser: Browser, kind: PageKind) -> "WebPage":
        send = browser.connection.send
        context = (await send("Target.createBrowserContext", {"disposeOnDetach": True}))["browserContextId"]
        shape = {"url": "about:blank", "width": kind.width, "height": kind.height, "enableBeginFrameControl": True}
        target = (await send("Target.createTarget", {**shape, "browserContextId": context}))["targetId"]
        session = (await send("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        page = cls(browser, kind, target, session)
        page._context = context
        await asyncio.gather(
            page.send("Page.enable"),
            page.send("Emulation.setFocusEmulationEnabled", enabled=True),
            page.send("Emulation.setTimezoneOverride", timezoneId="UTC"),
            page.send("Emulation.setLocaleOverride", locale="en-US"),
            page.send("Page.addScriptToEvaluateOnNewDocument", source=kind.script),
        )
        return page

    async def open(self, url: str, start: str, before: str = "null") -> Any:
        """Goes to an address and evaluates the expression `start` there. Only the script of its kind runs before the
        document."""
        self._drawn = False
        answer = await self.send("Page.navigate", url=url)
        if "errorText" in answer:
            raise SandboxFailure(f"{url.partition('?')[0]}: {answer['errorText']}")
        return await self.evaluate(start)

    async def settle(self, ms: int) -> None:
        """Lets the page's time pass until it settles, including navigations to other documents."""
        while True:
            try:
                await self.evaluate(f"__page.settle({ms})")
                return
            except ScriptFailure:
                raise
            except SandboxFailure:
                if not self._browser.alive:
                    raise
                await self.evaluate("1")  # raises if the page has ended instead of navigated
                await asyncio.sleep(0.02)

    async def release(self) -> None:
        """Discards the page, so that no other trajectory uses it."""
        await self.close()

    async def close(self) -> None:
        """Closes the page and discards its context."""
        await super().close()
        with contextlib.suppress(SandboxFailure):
            await self._browser.connection.send("Target.disposeBrowserContext", {"browserContextId": self._context})
