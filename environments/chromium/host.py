"""Host sandboxes as pages of one browser, and replace it when it dies."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from environments.chromium.browser import NO_HOSTS, Browser
from environments.host import Host
from environments.processes import memory_mb
from environments.sandbox import Sandbox
from schemas.failure import SandboxFailure

ANSWERS_S = 10.0
"""Time limit of the version request in seconds; a healthy browser answers within milliseconds, even if it is busy."""


class BrowserHost(Host):
    """A browser that is replaced when it dies.

    Args:
        path: the program.
        make: makes a sandbox in a running browser.
    """

    def __init__(self, path: Path, make: Callable[[Browser], Sandbox]) -> None:
        self._path, self._make = path, make
        self._browser: Browser | None = None
        self._reviving = asyncio.Lock()

    @property
    def reachable(self) -> Mapping[str, str]:
        """Returns the hosts that pages can reach, in the form for `resolver_rules`: none."""
        return NO_HOSTS

    @property
    def alive(self) -> bool:
        """Whether the browser runs."""
        return self._browser is not None and self._browser.alive

    @property
    def memory_mb(self) -> float | None:
        """Returns the memory of all of the browser's processes."""
        return memory_mb(self._browser.pid) if self._browser is not None else None

    async def healthy(self) -> bool:
        """Checks whether the browser reports its version; a stopped or hanging browser is alive but does not."""
        if self._browser is None:
            return False
        try:
            async with asyncio.timeout(ANSWERS_S):
                await self._browser.connection.send("Browser.getVersion")
        except (TimeoutError, SandboxFailure):
            return False
        return True

    async def revive(self) -> bool:
        """Starts a browser if none runs."""
        async with self._reviving:
            if self.alive:
                return False
            dead, self._browser = self._browser, None
            if dead is not None:
                await dead.close()
            self._browser = await Browser.launch(self._path, self.reachable)
            return dead is not None

    def sandbox(self) -> Sandbox:
        """Makes a sandbox with a page of the browser."""
        assert self._browser is not None
        return self._make(self._browser)

    async def close(self) -> None:
        """Ends the browser."""
        async with self._reviving:
            if self._browser is not None:
                await self._browser.close()
                self._browser = None
