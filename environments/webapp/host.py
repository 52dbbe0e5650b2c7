"""Host a browser whose pages reach only the applications of one environment, and the server of those."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from environments.chromium.browser import Browser
from environments.chromium.host import BrowserHost
from environments.sandbox import Sandbox
from environments.webapp.contract import Contract
from schemas.failure import FlywheelError, UsageError

if TYPE_CHECKING:
    from environments.webapp.server import AppServer

TIMEOUT_S = 10.0
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class AppAddress:
    """The address of an application."""

    origin: str
    """Origin as its page has it."""
    contract: Contract


def host_and_port(url: str, key: str) -> str:
    """Converts an origin to `name:port`, as the browser's pages reach it.

    Raises:
        UsageError: it is none, or has a path; names the key of the config.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    if not port or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError(f"`{key}`: {url!r} is no origin.", "Write it as http://127.0.0.1:3000, without a path.")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{name}:{port}"


class WebHost(BrowserHost):
    """A browser, and the server of the built applications, which runs as long as the host.

    Args:
        path: the browser.
        make: makes a sandbox in a running browser, given the addresses of the applications.
        folders: built applications by name.
        origins: applications that others serve, by name: the origin, and `name:port` as `host_and_port` has it.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[Browser, Mapping[str, AppAddress]], Sandbox],
        folders: Mapping[str, Path],
        origins: Mapping[str, tuple[str, str]],
    ) -> None:
        super().__init__(path, lambda browser: make(browser, self._places))
        self._folders, self._origins = folders, origins
        self._server: AppServer | None = None
        self._client: httpx.AsyncClient | None = None
        self._places: Mapping[str, AppAddress] = {}

    @property
    def reachable(self) -> Mapping[str, str]:
        """The applications, each at its one port."""
        served = {} if self._server is None else {f"{name}.{DOMAIN}:80": self._server.address for name in self._folders}
        return served | {address: address for _, address in self._origins.values()}

    async def revive(self) -> bool:
        """Starts the server of the applications, if it does not run, and a browser."""
        if self._client is None:
            self._open()
        return await super().revive()

    async def close(self) -> None:
        """Ends both."""
        await super().close()
        client, server, self._client, self._server = self._client, self._server, None, None
        if client is not None:
            await client.aclose()
        if server is not None:
            server.close()

    def _open(self) -> None:
        from environments.webapp.server import KEY, AppServer  # a web server, which only this environment needs

        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        places = {name: AppAddress(url, Contract(self._client, url, {})) for name, (url, _) in self._origins.items()}
        if self._folders:
            self._server = AppServer(self._folders)
            for name in self._folders:
                headers = {KEY: self._server.key, "host": f"{name}.{DOMAIN}"}
                contract = Contract(self._client, f"http://{self._server.address}", headers)
                places[name] = AppAddress(f"http://{name}.{DOMAIN}", contract)
        self._places = places


DOMAIN = "localhost"
"""A browser resolves names below it to this machine, so their pages count as secure contexts."""


def built_in(folder: Path, name: str, key: str) -> Path:
    """Folder of a built application; raises FlywheelError if it was not built."""
    place = folder / name
    if not (place / "index.html").is_file():
        raise FlywheelError(
            f"`{key}`: the application `{name}` is not in {folder}.",
            "Build it: flywheel environments add cua-gym-hub --from DIR (docs/webapps.md).",
        )
    return place
