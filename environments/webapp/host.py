"""Host a browser whose pages only reach the applications of one environment, and the applications' server.

The server serves built web applications by the contract of CUA-Gym-Hub, with a separate state for every session.

One server for all applications of a host runs in this process, only on this machine's loopback. Each application has
its own host name, so that applications are separate origins. A session's states are in memory while it is leased.

- `GET /state?sid=`: the page reads its state when it loads. `POST /post?sid=`: it writes its state when that changes.
- `POST /post?sid=` with `set` sets both states of a session, and `GET /go?sid=` returns their difference. Both need the
  server's key, so that no page can begin a session or read the states for its verification.
"""

import json
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Host, Mount, Route
from starlette.staticfiles import StaticFiles

from environments.chromium.browser import Browser
from environments.chromium.environment import BrowserHost
from environments.sandbox import Sandbox
from schemas.failure import FlywheelError, SandboxFailure, TrajectoryFailure, UsageError
from schemas.world import State


def new_session() -> str:
    """Makes a random id that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Contract:
    """The contract of an application at an address.

    Args:
        client: HTTP client.
        base: `http://address:port`.
        headers: headers of every request.
        origin: origin of the application's pages.
    """

    def __init__(self, client: httpx.AsyncClient, base: str, headers: dict[str, str], origin: str) -> None:
        self._client, self._base, self._headers = client, base, headers
        self.origin = origin

    async def set(self, sid: str, state: State) -> None:
        """Begins a session in a state; raises SandboxFailure."""
        await self._ask("POST", "/post", sid, {"action": "set", "state": state})

    async def put(self, sid: str, state: State) -> None:
        """Writes a session's current state, as a page does; raises SandboxFailure."""
        await self._ask("POST", "/post", sid, {"action": "set_current", "state": state})

    async def states(self, sid: str) -> tuple[State, State]:
        """Returns the initial and the current state; raises SandboxFailure, or TrajectoryFailure for an invalid
        answer."""
        answer = await self._ask("GET", "/go", sid)
        try:
            message: Any = answer.json()
            initial, current = message["initial_state"], message["current_state"]
        except (ValueError, KeyError, TypeError) as error:
            raise TrajectoryFailure("verifier", f"{self._base}/go answers with no states") from error
        if not isinstance(initial, dict) or not isinstance(current, dict):
            raise TrajectoryFailure("verifier", f"{self._base}/go answers with states that are not objects")
        return cast(State, initial), cast(State, current)

    async def end(self, sid: str) -> None:
        """Deletes a session; raises SandboxFailure."""
        await self._ask("POST", "/end" if self._headers else "/post", sid, {"action": "reset"})

    async def _ask(self, method: str, path: str, sid: str, output: Any = None) -> httpx.Response:
        try:
            return (
                await self._client.request(
                    method, f"{self._base}{path}", params={"sid": sid}, json=output, headers=self._headers
                )
            ).raise_for_status()
        except httpx.HTTPError as error:
            raise SandboxFailure(f"{self._base}{path}: {error or type(error).__name__}") from error


TIMEOUT_S = 10.0
PORTS = {"http": 80, "https": 443}


def host_and_port(url: str, key: str) -> str:
    """Converts an origin to `name:port`, as the browser's pages reach it.

    Raises:
        UsageError: the text is no origin or has a path; the message names the config key.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    if not port or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError(f"`{key}`: {url!r} is not an origin.", "Write it as http://127.0.0.1:3000, without a path.")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{name}:{port}"


class WebHost(BrowserHost):
    """A browser, and the server of the built applications, which runs as long as the host.

    Args:
        path: the browser.
        make: makes a sandbox in a running browser, given the contracts of the applications.
        folders: built applications by name.
        origins: applications on other servers, by name: the origin, and `name:port` by `host_and_port`.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[Browser, Mapping[str, Contract]], Sandbox],
        folders: Mapping[str, Path],
        origins: Mapping[str, tuple[str, str]],
    ) -> None:
        super().__init__(path, lambda browser: make(browser, self._places))
        self._folders, self._origins = folders, origins
        self._server: AppServer | None = None
        self._client: httpx.AsyncClient | None = None
        self._places: Mapping[str, Contract] = {}

    @property
    def reachable(self) -> Mapping[str, str]:
        """Returns the applications, each with its port."""
        served = {} if self._server is None else {f"{name}.{DOMAIN}:80": self._server.address for name in self._folders}
        return served | {address: address for _, address in self._origins.values()}

    async def revive(self) -> bool:
        """Starts the server of the applications, if it does not run, and a browser."""
        if self._client is None:
            self._open()
        return await super().revive()

    async def close(self) -> None:
        """Ends the server and the browser."""
        await super().close()
        client, server, self._client, self._server = self._client, self._server, None, None
        if client is not None:
            await client.aclose()
        if server is not None:
            server.close()

    def _open(self) -> None:
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        places = {name: Contract(self._client, url, {}, url) for name, (url, _) in self._origins.items()}
        if self._folders:
            self._server = AppServer(self._folders)
            for name in self._folders:
                headers = {KEY: self._server.key, "host": f"{name}.{DOMAIN}"}
                origin = f"http://{name}.{DOMAIN}"
                places[name] = Contract(self._client, f"http://{self._server.address}", headers, origin)
        self._places = places


DOMAIN = "localhost"
"""Domain of the applications; browsers resolve its names to this machine, and treat their pages as secure contexts."""


def built_in(folder: Path, name: str, key: str) -> Path:
    """Returns the folder of a built application; raises FlywheelError if it was not built."""
    place = folder / name
    if not (place / "index.html").is_file():
        raise FlywheelError(
            f"`{key}`: the application `{name}` is not in {folder}.",
            "Build it: flywheel environments add cua-gym-hub --from DIR (docs/webapps.md).",
        )
    return place


KEY = "x-flywheel-key"
"""Header with the server's key."""
MOST_BYTES = 16 << 20
"""Maximum bytes of a state."""


class Sessions:
    """The sessions of one application."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._held: dict[str, tuple[State, State]] = {}
        """The initial and the current state of each session."""

    def routes(self, folder: Path) -> list[Route | Mount]:
        """Makes the routes of the contract, then of the files of a folder."""
        return [
            Route("/state", self._state),
            Route("/post", self._post, methods=["POST"]),
            Route("/go", self._go),
            Route("/end", self._end, methods=["POST"]),
            Mount("/", _Files(directory=folder, html=True)),
        ]

    async def _state(self, request: Request) -> Response:
        _, current = self._held.get(request.query_params.get("sid", ""), (None, None))
        return _json({"stored_state": current, "has_custom_state": current is not None})

    async def _post(self, request: Request) -> Response:
        """Handles `set`, which begins a session, and `set_current`, which continues one; ignores a page's claim about
        its initial state."""
        sid = request.query_params.get("sid", "")
        try:
            answer = json.loads(await request.body())
            action, state = answer["action"], answer["state"]
        except (ValueError, KeyError, TypeError):
            return PlainTextResponse("an action and a state are wanted", 400)
        if not isinstance(state, dict):
            return PlainTextResponse("a state is an object", 400)
        if action == "set" and self._is_ours(request) and sid:
            self._held[sid] = (state, state)
        elif action in ("set", "set_current") and sid in self._held:
            self._held[sid] = (self._held[sid][0], state)
        else:
            return PlainTextResponse("there is no such session", 404)
        return _json({"success": True})

    async def _go(self, request: Request) -> Response:
        sid = request.query_params.get("sid", "")
        if sid not in self._held or not self._is_ours(request):
            return PlainTextResponse("there is no such session", 404)
        initial, current = self._held[sid]
        changed = {
            name: {"modified" if initial.get(name) else "added": value}
            for name, value in current.items()
            if name not in initial or initial[name] != value
        }
        return _json({"initial_state": initial, "current_state": current, "state_diff": changed})

    async def _end(self, request: Request) -> Response:
        if self._is_ours(request):
            self._held.pop(request.query_params.get("sid", ""), None)
        return _json({"success": True})

    def _is_ours(self, request: Request) -> bool:
        return secrets.compare_digest(request.headers.get(KEY, ""), self._key)


class LoopbackServer:
    """Serves in a thread of this process, on this machine only, until it is closed; it ends with the process.

    Args:
        app: the application.
        name: name of the thread.
    """

    def __init__(self, app: Starlette, name: str) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            _Bounded(app), log_config=None, access_log=False, server_header=False, lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True, name=name)
        self._thread.start()

    def close(self) -> None:
        """Ends the server."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class AppServer(LoopbackServer):
    """Serves built applications, with a key that pages do not know.

    Args:
        folders: folders of built applications, by name.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.key = secrets.token_urlsafe(24)
        hosts = [
            Host(f"{name}.{DOMAIN}", Starlette(routes=Sessions(self.key).routes(folder)))
            for name, folder in folders.items()
        ]
        super().__init__(Starlette(routes=hosts), "webapps")


class _Files(StaticFiles):
    """Files of a built application; an address without a file is a page of the application."""

    async def get_response(self, path: str, scope: Any) -> Response:
        """Returns the file, else the application's document; a missing script or picture answers 404."""
        try:
            return await super().get_response(path, scope)
        except Exception as error:
            if getattr(error, "status_code", None) != 404 or "." in Path(path).name:
                raise
        return FileResponse(Path(str(self.directory)) / "index.html")


class _Bounded:
    """Refuses bodies whose declared length is too long; a body without a length is refused, too."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        length = headers.get(b"content-length", b"" if b"transfer-encoding" in headers else b"0")
        if scope["type"] != "http" or not length.isdigit() or int(length) > MOST_BYTES:
            if scope["type"] == "http":
                await PlainTextResponse("that is too long", 413)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _json(content: Mapping[str, Any]) -> Response:
    return JSONResponse(content, headers={"cache-control": "no-store"})
