"""Host sandboxes as pages of one browser, and replace it when it dies."""

from collections.abc import Callable, Mapping
from pathlib import Path

from environments.chromium.browser import NO_HOSTS, Browser
from environments.host import ProcessHost
from environments.sandbox import Sandbox


class BrowserHost(ProcessHost[Browser]):
    """A browser that is replaced when it dies.

    Args:
        path: the program.
        make: makes a sandbox in a running browser.
    """

    def __init__(self, path: Path, make: Callable[[Browser], Sandbox]) -> None:
        super().__init__()
        self._path, self._make = path, make

    @property
    def reachable(self) -> Mapping[str, str]:
        """Returns the hosts that pages can reach, in the form for `resolver_rules`: none."""
        return NO_HOSTS

    async def _launch(self) -> Browser:
        return await Browser.launch(self._path, self.reachable)

    async def _ask(self, process: Browser) -> object:
        return await process.connection.send("Browser.getVersion")

    def sandbox(self) -> Sandbox:
        """Makes a sandbox with a page of the browser."""
        assert self._process is not None
        return self._make(self._process)
