"""What sandboxes live in: a browser that may die and is then replaced, or nothing at all for the fake ones."""

import asyncio
from abc import ABC, abstractmethod

from environments.chromium.browser import Browser, find_browser
from environments.fake.sandbox import FakeSandbox
from environments.miniwob.sandbox import MiniwobSandbox
from environments.sandbox import Sandbox
from schemas.config.sections import EnvironmentConfig


class Host(ABC):
    """Makes sandboxes while it is alive; `revive` makes it alive again."""

    leases: int = 0
    """How many sandboxes are leased in it now."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a sandbox can be started in it."""

    @abstractmethod
    async def revive(self) -> bool:
        """Brings it to life if it is not; says whether a dead one was replaced. Raises SandboxFailure."""

    @abstractmethod
    def sandbox(self) -> Sandbox:
        """A new sandbox in it, not yet started."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it."""


class BrowserHost(Host):
    """One browser, and the next one when it dies."""

    def __init__(self, environment: EnvironmentConfig) -> None:
        self._environment = environment
        self._path = find_browser(environment.browser)
        self._browser: Browser | None = None
        self._reviving = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether the browser runs."""
        return self._browser is not None and self._browser.alive

    @property
    def browser(self) -> Browser:
        """The browser that runs now."""
        assert self._browser is not None
        return self._browser

    async def revive(self) -> bool:
        """Launches a browser where none runs."""
        async with self._reviving:
            if self.alive:
                return False
            dead, self._browser = self._browser, None
            if dead is not None:
                await dead.close()
            self._browser = await Browser.launch(self._path)
            return dead is not None

    def sandbox(self) -> Sandbox:
        """A page of the browser."""
        return MiniwobSandbox(self.browser, self._environment.step_timeout_s)

    async def close(self) -> None:
        """Ends the browser."""
        async with self._reviving:
            if self._browser is not None:
                await self._browser.close()
                self._browser = None


class FakeHost(Host):
    """Nothing: a fake sandbox needs no home."""

    def __init__(self, environment: EnvironmentConfig) -> None:
        self._environment = environment

    @property
    def alive(self) -> bool:
        """Always."""
        return True

    async def revive(self) -> bool:
        """Nothing to do."""
        return False

    def sandbox(self) -> Sandbox:
        """A fake sandbox."""
        return FakeSandbox(self._environment.step_timeout_s)

    async def close(self) -> None:
        """Nothing to end."""
        return


def hosts_of(environment: EnvironmentConfig) -> list[Host]:
    """The hosts a config asks for; raises FlywheelError if there is no browser for them."""
    kind = {"miniwob": BrowserHost, "fake": FakeHost}[environment.kind]
    return [kind(environment) for _ in range(environment.browsers)]
