"""Define the common parts of all browser environments: config keys, hosts, and requirements on this machine.

A host is a browser, whose pages are the sandboxes. It is replaced when it dies.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from environments.chromium.browser import NO_HOSTS, Browser, browser_version, find_browser
from environments.environment import Environment
from environments.host import Host, ProcessHost, start_once
from environments.sandbox import Sandbox
from schemas.config.section import Count, Positive, Whole
from schemas.config.sections import EnvironmentConfig
from schemas.failure import Probe


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


class ChromiumConfig(EnvironmentConfig):
    """Pages of headless browsers."""

    browser: str | None = None
    """Path of a headless Chromium; if not set, the environment searches for it."""
    browsers: Count = 2
    """Number of browsers, each a separate process. If one dies, only its pages are lost."""
    pages: Count = 4
    """Pages per browser, each with one trajectory at a time."""
    spares: Whole = 0
    """Warm spare browsers that replace a dead browser; each takes about 100 MB."""
    browser_idle_s: Positive = 300.0
    """Seconds without a leased page after which a browser is ended, until it is needed again."""


Options = TypeVar("Options", bound=ChromiumConfig)


class ChromiumEnvironment(Environment[Options]):
    """An environment whose sandboxes are pages of browsers."""

    @abstractmethod
    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox in a running browser."""

    @property
    def hosts(self) -> int:
        """Number of browsers."""
        return self.config.browsers

    @property
    def sandboxes(self) -> int:
        """Number of pages per browser."""
        return self.config.pages

    @property
    def spares(self) -> int:
        """Number of browsers kept warm."""
        return self.config.spares

    @property
    def host_idle_s(self) -> float:
        """Returns `browser_idle_s`."""
        return self.config.browser_idle_s

    def host(self) -> Host:
        """Makes the host of a browser; raises FlywheelError if none is installed."""
        return BrowserHost(self._path(), self.sandbox)

    def probes(self) -> Sequence[Probe]:
        """Checks that a browser is installed and, for `doctor`, that it starts."""
        return (
            Probe("browser", lambda: f"{browser_version(self._path())} at {self._path()}"),
            Probe("browser starts", self._start, required=False),
        )

    def _path(self) -> Path:
        return find_browser(self.config.browser, f"environments.{self.name}.browser")

    def _start(self) -> str:
        return start_once(lambda: Browser.launch(self._path()), "Run it by hand to see its output.")
